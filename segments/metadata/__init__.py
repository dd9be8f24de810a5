"""What a broker knows beside its batches, as events and a snapshot: topics, groups, rules.

Each change is one control event, durable in the write-ahead log before anybody is answered; a
snapshot absorbs them.

A module imports only what stands above it:

    name_map         name -> something, immutable
    wide_rows        partition of one topic -> something, immutable
    partition_map    topic and partition -> something, immutable
    keyed_rows       the rows of a section, and a table of them, immutable
    alike            which names differ in . and _ only
    committed        where consumer groups stand
    emptied          since when nobody is in a group
    group_rows       what is the same for groups of every protocol
    generations      who is in classic groups and has what
    consumer_groups  the same of KIP-848 groups
    streams_groups   ... and of streams groups
    share_groups     what became of the records that share groups work on
    transactions     what is known of transactional ids
    together         rows of one kind, written down in as few events as hold them
    acls             who may do what
    quotas           how much a client may do
    broker_settings  what was changed of the broker's settings while it ran
    credentials      what is kept of users' passwords
    sections         whether the rows of all of these are as this version knows them
    metadata         the state: which topics exist, what is reserved; the snapshot of it
    control          its changes: control events
    metadata_log     ... and who keeps it; meta/
    ceilings         which offsets may be acknowledged before they are synced
"""
