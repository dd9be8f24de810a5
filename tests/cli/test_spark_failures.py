"""What `segbroker spark` makes of Spark's account of a failure; Spark itself is not needed."""

import pytest

from segbroker.cli.exit_codes import ExitCode
from segbroker.cli.spark_failures import failure_in

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


OF_A_TASK = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage \
1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (host executor \
driver): segbroker.spark.{}
\tat segbroker.spark.Loss.report(Loss.java:100)
\tat segbroker.spark.RangeReader.walk(RangeReader.java:153)

Driver stacktrace:
"""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("SourceError$SourceUnavailable: topic 'a': no progress", ExitCode.UNREACHABLE),
        ("SourceError$DataLoss: topic 'a' partition 3: offsets [10, 20) are lost", ExitCode.LOST),
        ("SourceError: topic 'a', batch at offset 0: CRC-32C", ExitCode.REFUSED),
    ],
)
def test_a_task_of_the_jar_that_failed_is_told_in_the_same_way(error: str, code: ExitCode) -> None:
    failure = failure_in(OF_A_TASK.format(error))
    assert failure is not None
    assert (str(failure), failure.code) == (error.partition(": ")[2], code)


def test_who_is_told_of_lost_records_is_told_of_the_option_of_the_command() -> None:
    sentence = "topic 'a' partition 3: offsets [10, 20) are lost."
    failure = failure_in(
        SHOWN.format(f"DataLoss: {sentence} Set failOnDataLoss=false to read what is left.")
    )
    assert failure is not None
    assert (str(failure), failure.hint) == (sentence, "--on-gap skip reads what is left")


def test_of_a_failure_of_sparks_own_the_first_line_is_said() -> None:
    failure = failure_in("\n[PARSE_SYNTAX_ERROR] Syntax error at 'SELEC'\n\n== SQL ==\n")
    assert failure is not None
    assert str(failure) == "[PARSE_SYNTAX_ERROR] Syntax error at 'SELEC'"
    assert failure.code == ExitCode.REFUSED
    assert failure_in("\n") is None
