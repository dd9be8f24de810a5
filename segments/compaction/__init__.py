"""Compaction: of each key the last record stays; one durable decision per segment swapped.

A module imports only what stands above it:

    offset_map  keys and where each was written last
    dirtiness   how much of a compacted log is dirty
    survivors   which records of a compacted log stay
    swapping    a segment written anew, put in the place of others
    cleaning    one cleaning of one log
    compacting  the cleanings of one open partition
"""
