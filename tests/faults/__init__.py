"""Faults of a real broker and of its real files: kills, failed calls, full disks, damage.

    history      what clients did and saw, and which anomalies are in it; pure
    load         producers and consumers that write a history
    traced       a daemon under strace: killed at, or lied to by, its N-th system call
    ...          one module per kind of fault, and the tests of each

The quick tier is the test modules here; the long one is `python -m tests.soak.<what>`.
"""
