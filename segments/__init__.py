"""What survives a power cut: segment files, their indexes, the registry of logs.

Blocking I/O through one port, `Storage`; time arrives as `now_ms`.  Nothing here knows a
socket, an event loop or the clock.  A module imports only what stands above it:

    errors         what can go wrong, by whose doing
    storage        the disk port, and whole-file reads and replacements over it
    posix, memory  its two implementations
    names          names on disk; which topic names can be
    topic_config   the settings of a topic: one table
    index          the block index of a segment
    index_cache    indexes in memory, bounded
    file_cache     open descriptors, bounded
    manifest       the sealed segments of a partition
    producers      what makes a repeated batch harmless
    background     flusher threads and the housekeeper, or everything at once
    recovery       what a file says after a crash, and what is done about it
    reads          a planned read, verified block by block
    log            SegmentedLog: one log, usable as a library
    meta           durable metadata
    handler        DiskHandler: one topic-partition
    manager        DiskManager: the registry of a data directory
"""
