"""What survives a power cut: segment files, their indexes, the registry of logs.

Blocking I/O through one port, `Storage`; time arrives as `now_ms`.  Nothing here knows a
socket, an event loop or the clock.  A module or package imports only what stands above it, and so
do the modules of each package in its own list:

    errors       what can go wrong, by whose doing it was
    told_once    what goes wrong again and again, told once
    disk         the disk port: this machine's, and one in memory with a power switch
    witness      what must exist, said from beside it
    names        which names a topic may have, what its files are called
    report       what recovery found and did
    background   the threads: flushers, house keepers
    parallel     work that is made of syncs, several at a time
    settings     what can be set per topic
    files        index and manifest: the files beside a segment
    metadata     what is known beside the batches: control events, snapshots
    behind_damage  where valid batches go on behind damage: the search
    decisions    what a crash left, and what to do about it: decisions, no action
    log          the log of one partition: segments, writes, reads
    recovery     ... surveyed, repaired, opened
    compaction   ... cleaned
    library      the log as a library, without a broker
    wal          the write-ahead log
    replay       ... put back after a start
    partition    one open partition, and what an acknowledgement means: DiskHandler
    directory    the data directory: DiskManager
    checks       the offline check
"""
