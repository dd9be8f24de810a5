"""What `segbroker spark` makes of Spark's account of a failure; Spark itself is not needed."""

import pytest

from segbroker.cli.exit_codes import ExitCode
from segbroker.cli.spark import failure_in

SHOWN = """[STREAM_FAILED] Query [id = 9cb3, runId = 3473] terminated with exception: Traceback:
  File "pyspark/sql/streaming/python_streaming_source_runner.py", line 267, in main
  File "segbroker/spark/errors.py", line 29, in call
segbroker.spark.errors.{}
 SQLSTATE: 38000 SQLSTATE: XXKST
"""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("OptionError: there is no option 'x'", ExitCode.USAGE),
        ("TopicMissing: topic 'flights' does not exist", ExitCode.NOT_FOUND),
        ("SourceUnavailable: offsets: 127.0.0.1:1: Connection refused", ExitCode.UNREACHABLE),
        ("DataLoss: topic 'a' partition 3: offsets [10, 20) are lost", ExitCode.LOST),
        ("SinkError: topic 'a': refused", ExitCode.REFUSED),
    ],
)
def test_the_exit_code_is_that_of_what_happened(error: str, code: ExitCode) -> None:
    failure = failure_in(SHOWN.format(error))
    assert failure is not None
    assert (str(failure), failure.code) == (error.partition(": ")[2], code)


def test_of_a_failure_of_sparks_own_the_first_line_is_said() -> None:
    failure = failure_in("\n[PARSE_SYNTAX_ERROR] Syntax error at 'SELEC'\n\n== SQL ==\n")
    assert failure is not None
    assert str(failure) == "[PARSE_SYNTAX_ERROR] Syntax error at 'SELEC'"
    assert failure.code == ExitCode.REFUSED
    assert failure_in("\n") is None
