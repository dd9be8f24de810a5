"""What the jar's reader is told: which queries it reads, and each task as JSON.

The jar (sources in spark/java) stands in front of this source under the same name.  It asks the
Python source everything that a driver decides, and takes over what executors do.  It asks with the
option ASK; the answer is one more column in the schema, MARK, whose comment is

    jvm                 tasks come as JvmPartition, and the rows are read by the jar
    python: and why     all is as without the jar

The option `reader` says who is wanted: auto (the jar where it can), python, jvm (or an error).

What the jar does not do: rows for gaps, segment files, TLS with other authorities than those of a
PEM file, with a certificate of its own or unverified.

Invariant: the choice follows from the options alone, so every process that makes this source for a
query chooses alike.
"""

import json
from collections.abc import Mapping

from pyspark.sql.datasource import InputPartition

from .connecting import parse_client
from .errors import OptionError
from .fetching import Task
from .given import Given, boolean
from .options import SourceOptions

ASK = "__jvm"
MARK = "$reader"
JVM = "jvm"


def choice(options: Mapping[str, str]) -> str:
    """`jvm`, or `python: ` and why, for a query of a session that has the jar.

    Raises OptionError where the option `reader` is wrong, or asks for what cannot be.
    """
    given = Given(options)
    wanted = _wanted(given)
    why = "the option reader says so" if wanted == "python" else _why_not(given)
    if why is None:
        return JVM
    if wanted == JVM:
        raise OptionError(f"reader=jvm cannot be: {why}")
    return f"python: {why}"


def reads_in_jvm(options: Mapping[str, str]) -> bool:
    """Whether the jar has asked, and reads.  Raises OptionError as `choice` does."""
    if ASK in Given(options).values:
        return choice(options) == JVM
    if _wanted(Given(options)) == JVM:
        raise OptionError(
            "reader=jvm needs segbroker's jar in the session, and there is none:"
            " segbroker.spark.session() adds it where it was built (make jar)"
        )
    return False


def mark(options: Mapping[str, str]) -> str:
    """The column that answers, to be put behind the others; nothing where nobody asks."""
    if ASK not in Given(options).values:
        return ""
    return f", `{MARK}` boolean COMMENT '{choice(options)}'"


class JvmPartition(InputPartition):
    """A task on its way to the jar's reader, which takes `value` out of the pickle."""

    def __init__(self, options: SourceOptions, task: Task) -> None:
        super().__init__(_task_text(options, task))


def _wanted(given: Given) -> str:
    name, value = given.own("reader")
    wanted = (value or "auto").strip().lower()
    if wanted not in ("auto", "python", JVM):
        raise OptionError(f"{name}={value!r} is not 'auto', 'python' or 'jvm'")
    return wanted


def _why_not(given: Given) -> str | None:
    """What the query asks for that the jar has not; None: nothing."""
    if boolean(given.own("includeGaps"), default=False):
        return "includeGaps is asked for"
    if given.own("readSegmentsFrom")[1] is not None:
        return "readSegmentsFrom is asked for"
    try:
        security = parse_client(given).security
    except OptionError:
        return "its options are wrong"  # and whoever reads them next says how
    if security is not None and security.tls:
        if not security.verify:
            return "certificates are not verified"
        if security.ca_file is None:
            return "the authorities are those of the system"
        if security.cert_file is not None:
            return "the client has a certificate"
    return None


def _task_text(options: SourceOptions, task: Task) -> str:
    """The other side is ScanTask.java."""
    client = options.client
    security = client.security
    return json.dumps(
        {
            "topic": task.range.topic,
            "topic_id": None if task.topic_id is None else str(task.topic_id),
            "partition": task.range.partition,
            "start": task.range.start,
            "end": task.range.end,
            "leader": task.leader,
            "fail_on_data_loss": options.fail_on_data_loss,
            "read_committed": options.read_committed,
            "fetch_bytes": options.fetch_bytes,
            "poll_timeout_ms": options.poll_timeout_ms,
            "client": {
                "bootstrap": client.bootstrap,
                "client_id": client.client_id,
                "request_timeout_ms": client.request_timeout_ms,
                "api_timeout_ms": client.api_timeout_ms,
                "tries_count_max": client.tries_count_max or 0,
                "retry_backoff_ms": client.retry_backoff_ms or 0,
                "security": None
                if security is None
                else {
                    "tls": security.tls,
                    "ca_file": security.ca_file,
                    "verify_host": security.verify_host,
                    "mechanism": security.mechanism,
                    "user": security.user,
                    "password": security.password,
                },
            },
        }
    )
