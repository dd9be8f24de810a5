"""The write-ahead log: what is acknowledged is here, synced, before its segment is.

    handlers -> submit -> | shard 0: one thread, one write, one fdatasync per group | -> acks
                          | shard 1 ...                                             |
    full files -> checkpoint: sync the logs that have frames in them -> recycled

Many partitions share one sequential file that is written once with zeros, so a sync commits bytes
and nothing else: no size, no block, no journal.  A partition's segments are synced later, lazily.

A module imports only what stands above it:

    trailers         who a frame is of, once more, at its end
    frames           the bytes of a WAL file
    scanning         what those of one file say, damaged ones included
    pending          what a partition has appended and not given to its shard yet
    kept             frames of logs that could not be synced, until the next start
    files            made ahead, named, recycled
    replay           what the files of all shards say at a start
    group            what is written and synced together, and who is told
    inline_sync      how much of the time who waits may sync himself: a token bucket
    supply           the next file, ready before it is needed
    shard            the one writer of a shard, its files, its failure
    journal          all shards: Wal
"""
