"""What an error of Spark says, as one sentence and an exit code.

Spark tells an error of ours, raised in a task or by the reader in the JVM, as text amid the
tracebacks of its own processes.
"""

import re
from typing import Final

from .exit_codes import ExitCode
from .failures import Failure

# An error of ours in an account of Spark's, by the reader in Python or by the jar.
_OURS: Final = re.compile(
    r"\bsegbroker\.spark\.(?:errors\.|SourceError\$)?"
    r"(OptionError|TopicMissing|SourceUnavailable|DataLoss|SinkError|SourceError): (.+)"
)
_CODES: Final = {
    "OptionError": ExitCode.USAGE,
    "TopicMissing": ExitCode.NOT_FOUND,
    "SourceUnavailable": ExitCode.UNREACHABLE,
    "DataLoss": ExitCode.LOST,
}


def failure_of(error: Exception) -> Failure | None:
    """What an error of Spark says, without the tracebacks inside it; None for another error."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    if isinstance(error, Py4JJavaError):
        # What PySpark has no class for, as of a task that failed; its first line names a call.
        text = str(error).partition("\n")[2].removeprefix(": ")
    elif isinstance(error, PySparkException):
        text = str(error)
    else:
        return None
    failure = failure_in(text) or Failure(type(error).__name__, ExitCode.REFUSED)
    if isinstance(error, AnalysisException) and failure.code is ExitCode.REFUSED:
        # Of SQL, columns or a path of the command line, before anything ran.
        return Failure(str(failure), ExitCode.USAGE)
    return failure


def failure_in(text: str) -> Failure | None:
    """The sentence in what Spark says of a failure: ours, if there is one, else its first line.

    text: with the tracebacks of its own processes.  None: it is empty.
    """
    ours = _OURS.findall(text)
    if ours:
        name, sentence = ours[-1]
        return failure_of_ours(name, sentence.strip())
    lines = text.strip().splitlines()
    return Failure(lines[0], ExitCode.REFUSED) if lines else None


def failure_of_ours(name: str, sentence: str) -> Failure:
    """Of an error of segbroker.spark, by the name of its class.

    The option that an error of lost records names has another name here.
    """
    code = _CODES.get(name, ExitCode.REFUSED)
    if code is not ExitCode.LOST:
        return Failure(sentence, code)
    return Failure(sentence.partition(" Set failOn")[0], code, "--on-gap skip reads what is left")
