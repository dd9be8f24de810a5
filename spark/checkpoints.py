"""Where a pipeline keeps its position if nobody says so, and what is on such a path.

    export   PATH/_segbroker/export-TOPIC
    import   PATH/_segbroker/import-TOPIC-ID, of a file or a pattern in the folder it lies in
    replay   segbroker-checkpoints/replay-SOURCE+TARGET

Invariant: where an earlier version has begun, the pipeline goes on.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from segbroker.client import Admin

from .cluster import Cluster
from .connecting import ClientOptions
from .errors import SinkError
from .offsets import id_text
from .options import Subscribe
from .writing import no_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Files that a file source looks past begin with this.
HIDDEN = "_segbroker"
# Folders in the current one.
REPLAYS = "segbroker-checkpoints/"


def of_export(path: str, topic: str) -> str:
    """In the folder of the files."""
    return f"{path.rstrip('/')}/{HIDDEN}/export-{topic}"


def of_import(
    spark: "SparkSession", client: ClientOptions, path: str, topic: str
) -> tuple[str, str | None]:
    """Where it is noted which files the topic has, and the id of the only topic that it is of.

    The one of another cluster has none of them, nor has one that was made again.
    """
    place = beside(spark, path, f"import-{topic}")
    if exists(spark, f"{place}/metadata"):  # of an earlier version, which knew one cluster
        return place, None
    with Admin(client.bootstrap_text, security=client.security) as admin:
        cluster_id = admin.describe_cluster().cluster_id
    if cluster_id is not None:
        place = beside(spark, path, f"import-{topic}-{cluster_id}")
    if exists(spark, f"{place}/metadata"):  # of one that knew no topics made again
        return place, None
    with closing(Cluster(client, creates_topics=True)) as cluster:
        found = cluster.layout(Subscribe((topic,))).get(topic)
    if found is None:  # a query that begins would leave its place
        raise SinkError(no_topic(topic))
    if found.topic_id is None:
        return place, None
    topic_id = id_text(found.topic_id)
    return beside(spark, path, f"import-{topic}-{topic_id}"), topic_id


def of_replay(spark: "SparkSession", source: str, target: str) -> str:
    """In the current folder; no name of a topic has a `+`.

    Earlier versions had the same place for `a-b c` and `a b-c`; one that they began goes on there.
    """
    earlier = f"{REPLAYS}replay-{source}-{target}"
    if exists(spark, f"{earlier}/metadata"):
        return earlier
    return f"{REPLAYS}replay-{source}+{target}"


def beside(spark: "SparkSession", path: str, name: str) -> str:
    """A hidden folder in the folder `path`; of a file, or a pattern, in the folder it lies in.

    A pattern lies in the folder in front of its first part that is one.  Earlier versions looked at
    its last part alone, and made a folder `date=*` for `lake/date=*/x.csv`.
    """
    parts = path.rstrip("/").split("/")
    letters = set("*") if exists(spark, path) else set("*?[{")
    patterns = [n for n, part in enumerate(parts) if letters & set(part)]
    last = len(parts) - 1
    # A folder with a dot in its name was taken for a file by earlier versions.
    is_file = last in patterns or "." in parts[last] or exists(spark, path, is_file=True)
    place = _within(parts, last if is_file else len(parts), name)
    if not patterns or exists(spark, f"{place}/metadata"):
        return place
    return _within(parts, patterns[0], name)


def _within(parts: Sequence[str], depth: int, name: str) -> str:
    """In the folder of the first `depth` parts of a path; the others are in the name."""
    rest = "+".join(parts[depth:]).replace("*", "+")
    return "/".join([*(parts[:depth] or ["."]), HIDDEN, f"{name}-{rest}" if rest else name])


def exists(spark: "SparkSession", path: str, *, is_file: bool = False) -> bool:
    """Whether there is such a file or folder, wherever Spark's paths reach; a file: `is_file`."""
    file, files = file_system(spark, path)
    return bool(files.exists(file) and (not is_file or files.getFileStatus(file).isFile()))


def file_system(spark: "SparkSession", path: str) -> tuple[Any, Any]:
    """The path, and what it is on, as Hadoop has them."""
    context = spark.sparkContext
    assert context._jvm is not None, "the session runs"
    file = context._jvm.org.apache.hadoop.fs.Path(path)
    return file, file.getFileSystem(context._jsc.hadoopConfiguration())
