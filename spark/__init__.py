"""The Spark source and sink: `format("segbroker")` of read, readStream, write and writeStream.

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
    layouts    which partitions are selected, and their leaders
    cluster    topics, leaders and the bounds of logs
    segment_files  sealed segments from a shared file system
    segment_transactions  which transactions in them were committed
    fetching   the batches of one range, one fetch ahead
    columns    batches as Arrow record batches
    weighing   how many bytes the next offsets take
    planning   the driver's decisions
    jvm        what the jar's reader is told
    lag        where a stream stands, as a group's offsets
    source     the readers of batches and streams
    rows       rows of a data frame as records
    sink_options   the options of the sink, checked
    transactions   the requests around a transaction
    held_records   records that wait, by partition, and where a batch ends
    writing    the records of one task on their way
    sink       the writers of batches and streams
    data_source    which of them Spark gets
    session    a session with the source in it
    progress   how far a streaming query is
    sampling   records of a topic to look at
    decoding   what is inside the values
    arrow_values   values that are Arrow streams, as rows
    checkpoints    where a pipeline keeps its position if nobody says so
    export_notes   what the first run of an export decided
    import_reading files as an import reads them
    pipelines  topic to files, files to topic, topic to topic
    asking     SQL over topics
"""

from .data_source import SegbrokerDataSource
from .errors import DataLoss, OptionError, SinkError, SourceError, SourceUnavailable
from .java import ensure_java
from .session import register, session

__all__ = [
    "DataLoss",
    "OptionError",
    "SegbrokerDataSource",
    "SinkError",
    "SourceError",
    "SourceUnavailable",
    "ensure_java",
    "register",
    "session",
]
