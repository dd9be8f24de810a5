"""One open partition of the broker: what an acknowledgement means, failures, retention.

A module imports only what stands above it:

    by_time            what is due in it by time alone
    rolling            what a partition that rolls has others do
    evicting           retention of one open partition, a few files at a time
    journaling         appends of class fsync on their way to the WAL
    partition_view     what a partition shows of itself
    failing            what its failed writes and syncs do, and the way back
    mending_partition  damage that is found in it while it is in use
    handler            one topic-partition, and what an acknowledgement means: DiskHandler
"""
