"""The log as a library, without a broker: SegmentedLog, QueuedLog, byte streams.

One caller, no thread but the writer of a QueuedLog.  How to use it: docs/storage.md.

A module imports only what stands above it:

    log        the log as a library: SegmentedLog
    queued     ... appended to by a queue, with linger: QueuedLog
    framing    where the values of a byte stream begin and end
    streaming  ... appended as they come, wholly or not at all
"""
