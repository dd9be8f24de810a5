"""Work that is made of syncs, several at a time: while one waits for the disk, others write.

    one_by_one    in the thread of who asks: where there are no threads at all
    overlapping   by a few threads that end with it; the file system commits their syncs together

Each place is worked on by one thread, and all are done, or given up, when it returns.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

THREADS_MAX: Final = 8

Each: TypeAlias = Callable[[Callable[[int], None], Iterable[int]], None]


def one_by_one(work: Callable[[int], None], places: Iterable[int]) -> None:
    """Do the work for each place, in order.  Raises what the work raises, at once."""
    for place in places:
        work(place)


def overlapping(work: Callable[[int], None], places: Iterable[int]) -> None:
    """Do the work for each place, up to THREADS_MAX at a time.

    Raises what the work of the first place that failed has raised; what had not begun by then is
    not done.
    """
    with ThreadPoolExecutor(THREADS_MAX) as pool:
        for _ in pool.map(work, places):
            pass
