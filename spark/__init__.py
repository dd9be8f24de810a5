"""The Spark source: `spark.readStream.format("segbroker")`, and `spark.read` with the same options.

Rows for executors, no jar: the wire is Kafka's, so it reads Apache Kafka as well.  A module imports
only what stands above it:

    java       a Java for Spark where the machine has none
    errors     what the source raises itself
    given      options as the user gave them
    connecting how to reach the brokers
    positions  where a query starts and ends
    options    the options of the source, checked
    offsets    offsets as JSON, fair shares, ranges
    link       one connection with a blocking socket
    loss       what of a range is gone
    cluster    topics, leaders and the bounds of logs
    fetching   the batches of one range, one fetch ahead
    columns    batches as Arrow record batches
    weighing   how many bytes the next offsets take
    planning   the driver's decisions
    lag        where a stream stands, as a group's offsets
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
