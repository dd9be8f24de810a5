"""What the write-ahead log holds after a start, put back where it belongs.

A module imports only what stands above it:

    restoring     ... into sealed segments that have lost them
    replaying     frames of the WAL put back into the segments they came from
    putting_back  all that the WAL holds: back, kept, or told
    resuming      how partitions go on after a start
"""
