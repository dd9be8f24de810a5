"""A log found after a crash, or damaged while in use: surveyed, repaired, opened.

The decisions are in decisions.py, one level up; here they are prepared and carried out.

A module imports only what stands above it:

    epochs           which leader epochs a log was in, by its batches
    identity         whether a file is the segment that it is named after
    unfinished       a cleaning that a crash interrupted
    known            what a manifest says of its log
    survey           a log as it lies there: read and judged, not changed
    corruption       what on.corruption says
    repairing        the decisions carried out
    producer_replay  the producers as of the end of a log
    opening          a log opened, and recovered
    mending          a damaged segment repaired while its log is in use
    truncating       a log that ends earlier
    lost_tail        a log that goes on behind what a power cut took
"""
