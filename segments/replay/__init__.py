"""What the write-ahead log holds after a start, put back where it belongs.

    wal/replay.py reads it -> putting_back -> segments, durable -> the WAL's files are free again

It happens before any log is judged by recovery/ and before the broker listens.  What cannot be put
back (a full disk, a file that fails) stays in the WAL and is reported; nothing in the WAL is
freed before it is durable elsewhere.

A module imports only what stands above it:

    restoring     ... into sealed segments that have lost them
    replaying     frames of the WAL put back into the segments they came from
    putting_back  all that the WAL holds: put back, kept, or reported
    resuming      how partitions continue after a start
    doubting      what a failed sync has cost, if nobody has looked before a kill
    tearing       which open transactions have lost records
"""
