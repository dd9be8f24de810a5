"""The guide's and the README's snippets for Spark run, in the order in which they stand."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..snippets import snippets
from ..topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.spark


@pytest.mark.usefixtures("segbroker_only")
def test_the_snippets_of_the_guide_run(
    spark: "SparkSession", topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # a snippet sets it where it is not set
    for topic in ("flights", "by-carrier", "clicks"):
        topics.create(topic)
    flights = [{"carrier": "UA" if n % 3 else "AA", "dep_delay": n} for n in range(30)]
    topics.produce("flights", [json.dumps(flight).encode() for flight in flights])
    readme = (ROOT / "README.md").read_text().split("\n## From Spark\n")[1]
    guide = snippets((ROOT / "docs" / "spark.md").read_text())
    assert len(guide) == 4
    names: dict[str, object] = {"__name__": "guide"}
    for snippet in (*guide, *snippets(readme)):
        code = snippet.replace("127.0.0.1:9092", topics.bootstrap)
        # Checkpoints lie where the JVM runs.
        code = code.replace('Location", "', f'Location", "{tmp_path}/')
        exec(compile(code, "docs/spark.md", "exec"), names)
    written = topics.read("by-carrier", 31)
    assert [row.key for row in written].count(b"UA") == 21
    assert written[-1].value == b"a record"
