"""What source and sink raise themselves.  Spark shows the sentence inside its own STREAM_FAILED or
PYTHON_EXCEPTION, below a traceback: so each says all that is needed in one line.

OptionError is the user's doing (an option), DataLoss the log's (what was asked for is gone), and
SourceUnavailable the world's (no broker answered until the deadline).  Errors of single requests
are segbroker.client's; they are retried and end up as SourceUnavailable.
"""


class SourceError(Exception):
    """Base of what this package raises."""


class OptionError(SourceError, ValueError):
    """An option is missing, unknown, malformed or contradicts another; says which and why."""


class DataLoss(SourceError):
    """Offsets that the query must read are not in the log any more; names each range."""


class SourceUnavailable(SourceError):
    """The brokers did not answer until the deadline; carries the last reason."""


class SinkError(SourceError):
    """Rows could not be written; says which and why."""
