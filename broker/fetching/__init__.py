"""Reads: whole batches from an offset on, now or when there are enough; offsets by time and epoch.

A module imports only what stands above it:

    fetch_target    one partition of a fetch
    fetch_plan      which bytes of which partitions; on the loop, without I/O
    fetch_reply     read and encoded when it is about to leave
    fetch           the request, and its wait
    offsets         by time, by leader epoch
"""
