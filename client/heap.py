"""What is freed and needed again a moment later stays with the process.

    mapped block of 16 MiB --freed--> blocks up to 16 MiB come from the heap, not from mmap;
                                      the heap gives back what is free above 32 MiB, not 128 KiB

A producer makes and frees half a megabyte per batch, and the caller's values with it.  Where each
goes back to the kernel, the next costs a hundred page faults: a tenth of what a record of 1 KiB
costs.  glibc learns from what a program frees: the largest mapped block, up to 32 MiB, sets both
bounds for the whole process, as freeing any such array would.  So one block is allocated,
never touched, and freed.  Another allocator, or one whose bounds are set by its environment
(MALLOC_MMAP_THRESHOLD_), takes no notice.

A consumer gains nothing by it: its blocks are so large that the bounds rise by themselves.

Limit: a process that has had a producer keeps up to 32 MiB of what it freed last.
"""

from functools import cache

KEPT_BYTES = 16 << 20


@cache
def keep_freed_memory() -> None:
    """Have the allocator keep what producers free, from the first one of the process on.

    Once: the next such block would come from the heap, and be zeroed byte by byte.
    """
    bytes(KEPT_BYTES)  # zeroed by being mapped: no page of it is ever made
