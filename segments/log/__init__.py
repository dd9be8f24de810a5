"""The log of one partition: segments in order, writes, reads, rolls; no thread, no waiting.

Whoever calls owns the lock.  What stands here is neither recovered (recovery/) nor acknowledged
(partition/).

A module imports only what stands above it:

    transaction_index  which transactions are open, which ranges were aborted
    producers          what is remembered of idempotent producers; .producers
    segment            a segment that is not sealed yet
    columns            the sealed ones, as columns
    first_stamps       the time of a segment's first batch, read from its file
    log_storage        the disk of one log, which hears of its names
    ready              segments made ahead of need
    caches             what is open and what is loaded, with limits
    sealed             sealed segments as files
    reading            reads: done, verified, cut
    partition_log      the log of one partition: order, writes, rolls, syncs
    planning           reads: planned, without I/O
    lookup             offsets by time and by epoch
    accounting         offsets that are no records, and why
    retention          what goes by age, bytes, records; when a log is full
    append_checks      what only some topics ask of a batch: keys, room, timestamps
    producer_snapshot  what is remembered of producers, saved
    deleting           a log that begins later
    salvaging          new files for those whose sync has failed
    sealing            from rotating to sealed; checkpoints
"""
