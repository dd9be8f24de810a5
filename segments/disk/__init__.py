"""The disk port: everything that the log asks of a disk, on this machine and in memory.

Blocking.  Tests and the simulation put a disk with faults in its place.

A module imports only what stands above it:

    file_size   how large a file of the process may become
    storage     the disk port
    posix       ... on this machine; nothing else touches `os`
    memory      the disk in memory, with a power switch
    forwarding  another disk, for what stands in front of one
    in_place    ... which refuses paths of a directory that is not at its own any more
    relieving   ... which gives back descriptors when the process has none left
"""
