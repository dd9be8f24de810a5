"""The write-ahead log: what is acknowledged is here, synced, before its segment is.

    handlers -> submit -> | shard 0: one thread, one write, one fdatasync per group | -> acks
                          | shard 1 ...                                             |
    full files -> checkpoint: sync the logs that have frames in them -> used again

Why: many partitions share one sequential file that was filled with zeros before, so a sync commits
bytes and nothing else: no size, no block, no journal of the file system.  The segments of a
partition are synced later.  Control events (metadata/) are in it, too.

Begin with frames.py (the bytes) and shard.py (the writer); what a start makes of the files is in
replay.py, and who puts it back in segments/replay/.  docs/formats.md has the bytes as tables.

Never: tell anybody of a frame before its sync returned; sync a file again whose sync has failed;
free a file before everything in it is durable elsewhere.

A module imports only what stands above it:

    trailers         the identity of a frame once more, at its end
    frames           the bytes of a WAL file
    scanning         what those of one file say, damaged ones included
    pending          what a partition has appended and not given to its shard yet
    markers          which files must exist
    reached          how far the newest file was written
    kept             frames that outlive their files, until the next start
    files            made ahead, named, used again
    missing          which frames were there and are not
    replay           what the files of all shards say at a start
    recall           ... and what files in use still have of one partition
    group            what is written and synced together, and who is told
    sync_times       how long syncs take: a histogram
    inline_sync      how much of the loop's time syncs may take: a token bucket
    supply           the next file, ready before it is needed
    vouching         what vouches for the ends of logs, also when the files of it go
    shard            the one writer of a shard, its files, its failure
    journal          all shards: Wal
"""
