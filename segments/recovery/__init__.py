"""A log found after a crash, or damaged while in use: surveyed, repaired, opened.

    survey (reads only) -> a list of steps -> repairing (changes files) -> opening (syncs, serves)

Which damage leads to which step is one table, in segments/decisions.py.  Recovery may itself be
killed anywhere, and be run twice: the second run changes nothing.  It never drops bytes that
somebody may have been promised: originals go to quarantine/, and a gap with a reason takes their
place.  docs/storage.md describes it for operators, tests/segments/crash tries every crash.

A module imports only what stands above it:

    epochs           which leader epochs a log was in, by its batches
    identity         whether a file is the segment that it is named after
    unfinished       a cleaning that a crash interrupted
    manifest_rows    the rows of a manifest, by what they say
    ownership        whether a manifest, or a whole directory, is another log's
    known            what a manifest says of its log, and the disk does not belie
    renewing         ... put into new files behind a failed sync
    survey           a log as it lies there: read and judged, not changed
    corruption       what on.corruption says
    repairing        the decisions carried out
    producer_replay  the producers as of the end of a log
    opening          a log opened, and recovered
    mending          a damaged segment repaired while its log is in use
    truncating       a log that ends earlier
    lost_tail        a log that continues after what a power cut took
"""
