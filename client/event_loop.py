"""Which loop of asyncio runs here.

There are two answers where a run of trio is a guest of asyncio: the loop of the thread is its
host's, and the task that runs is trio's.
"""

import asyncio


def loop_of_task() -> asyncio.AbstractEventLoop | None:
    """That of the task that runs; None: there is none, or it is trio's."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else task.get_loop()


def loop_here() -> asyncio.AbstractEventLoop | None:
    """That of this thread, also where no task of it runs; None: there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
