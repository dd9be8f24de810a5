"""The Spark source: `spark.readStream.format("segbroker")`, and `spark.read` with the same options.

Rows for executors, no jar: the wire is Kafka's, so it reads Apache Kafka as well.  A module imports
only what stands above it:

    java       a Java for Spark where the machine has none
    errors     what the source raises itself
    options    the user's options, checked
    offsets    offsets as JSON, fair shares, ranges
    link       one connection with a blocking socket
    cluster    topics, leaders and the bounds of logs
    loss       what of a range is gone
    fetching   the batches of one range, one fetch ahead
    columns    batches as Arrow record batches
    planning   the driver's decisions
    source     the data source and its readers
    session    a session with the source in it
"""

from .errors import DataLoss, OptionError, SourceError, SourceUnavailable
from .java import ensure_java
from .session import register, session
from .source import SegbrokerDataSource

__all__ = [
    "DataLoss",
    "OptionError",
    "SegbrokerDataSource",
    "SourceError",
    "SourceUnavailable",
    "ensure_java",
    "register",
    "session",
]
