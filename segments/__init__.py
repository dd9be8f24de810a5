"""What survives a power cut: segment files, their indexes, the registry of logs.

Blocking I/O through one port, `Storage`; time arrives as `now_ms`.  Nothing here knows a
socket, an event loop or the clock.  A module imports only what stands above it:

    errors           what can go wrong, by whose doing it was
    storage          the disk port
    posix            ... on this machine; nothing else touches `os`
    memory           ... in memory, with a power switch
    names            which names a topic may have, what its files are called
    units            numbers as people write them: 64 MiB, 7 d
    setting_values   text of a topic setting, as a value
    inert_settings   Kafka's topic settings that are taken without effect
    topic_config     the settings of a topic
    topic_defaults   ... and what is chosen for all of them
    timestamp_bounds which timestamps a topic takes
    transaction_index   which transactions are open, which ranges were aborted
    producers        what is remembered of idempotent producers; .producers
    index            where the blocks of a segment lie, and their checksums; .index
    offset_map       keys and where each was written last
    manifest         the rows a log keeps about itself; .manifest
    clean_points     how far a log was cleaned, and since when
    manifest_file    ... and who writes them
    partition_map    topic and partition -> something, immutable
    name_map         name -> something, immutable
    alike            which names differ in . and _ only
    committed        where consumer groups stand
    emptied          since when nobody is in them
    generations      who is in them and has what
    consumer_groups  the same of KIP-848 groups
    share_groups     what became of the records that share groups work on
    transactions     what is known of transactional ids
    acls             who may do what
    quotas           how much of it
    broker_settings  what was changed of the broker's settings while it ran
    credentials      what is kept of users' passwords
    sections         whether the rows of all of these are as this version knows them
    metadata         the state: which topics exist, what is reserved; the snapshot of it
    control          its changes: control events
    metadata_log     ... and who keeps it; meta/
    ceilings         which offsets may be acknowledged before they are synced
    segment          a segment that is not sealed yet
    columns          the sealed ones, as columns
    first_stamps     the time of a segment's first batch, read from its file
    dirtiness        how much of a compacted log is dirty
    recovery         what a crash left, and what to do about it: decisions, no action
    epochs           which leader epochs a log was in, by its batches
    report           what recovery found and did
    identity         whether a file is the segment that it is named after
    unfinished       a cleaning that a crash interrupted
    known            what a manifest says of its log
    ready            segments made ahead of need
    caches           what is open and what is loaded, with limits
    sealed           sealed segments as files
    reading          reads: done, verified, cut
    partition_log    the log of one partition: order, writes, rolls, syncs
    planning         reads: planned, without I/O
    lookup           offsets by time and by epoch
    accounting       offsets that are no records, and why
    retention        what goes by age, bytes, records; when a log is full
    append_checks    what only some topics ask of a batch: keys, room, timestamps
    producer_snapshot  what is remembered of producers, saved
    deleting         a log that begins later
    salvaging        new files for those whose sync has failed
    survivors        which records of a compacted log stay
    swapping         a segment written anew, put in the place of others
    cleaning         one cleaning of one log
    compacting       the cleanings of one open partition
    sealing          from rotating to sealed; checkpoints
    orphans          directories that belong to no topic
    survey           a log as it lies there: read and judged, not changed
    corruption       what on.corruption says
    repairing        ... and the decisions carried out
    producer_replay  the producers as of the end of a log
    opening          a log opened, and recovered
    mending          a damaged segment repaired while its log is in use
    truncating       a log that ends earlier
    lost_tail        a log that goes on behind what a power cut took
    log              the log as a library: SegmentedLog
    queued           ... appended to by a queue, with linger: QueuedLog
    framing          where the values of a byte stream begin and end
    streaming        ... appended as they come, wholly or not at all
    background       the threads: flushers, house keepers
    parallel         work that is made of syncs, several at a time
    wal              the write-ahead log: a package, with a list of its own
    restoring        frames of the WAL put back into sealed segments that have lost them
    replaying        ... into all segments they came from
    putting_back     all that the WAL holds: back, kept, or told
    resuming         how partitions go on after a start
    rolling          what a partition that rolls has others do
    evicting         retention of one open partition, a few files at a time
    journaling       appends of class fsync on their way to the WAL
    partition_view   what a partition shows of itself
    failing          ... what its failed writes and syncs do, and the way back
    mending_partition  ... damage that is found in it while it is in use
    handler          one topic-partition, and what an acknowledgement means: DiskHandler
    reserve          room that is kept for a start on a full disk
    age_clock        the clock that ages are measured by
    unopened         retention and cleaning of partitions that nobody has opened
    upkeep           who is looked after as time goes by, and how many at once
    opened_partitions  which partitions are open: opened once, by whoever asks first
    topic_registry   which topics there are: made, grown, altered, deleted
    start_room       how much room a start needs
    starting         what a data directory says before it is served
    manager          the data directory: DiskManager
    scrubbing        sealed segments read again and again, slowly
    cleaner          which partition is cleaned next, and how fast
    findings         what an offline check has to say
    log_check        one log checked, without changing a byte
    directory_check  ... and the whole data directory; what repairs it
"""
