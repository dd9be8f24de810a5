"""The thread that keeps house: who waits for it waits for all of it."""

import threading
from queue import SimpleQueue

from segbroker.segments.background import Housekeeper, Task

from .wal_writing import until


class Overtaken(SimpleQueue[Task | None]):
    """Who looks from outside whether it is empty looks when the next task has been taken."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = ""
        self.is_taken = threading.Event()

    def empty(self) -> bool:
        if threading.current_thread().name != self.thread:
            assert self.is_taken.wait(60)
        return super().empty()


def test_who_waits_until_it_is_idle_waits_for_the_task_that_was_just_taken() -> None:
    housekeeper, queue = Housekeeper(threaded=False), Overtaken()
    ended: list[str] = []

    def follows() -> None:
        queue.is_taken.set()
        threading.Event().wait(0.2)  # longer than who does not wait for it
        ended.append("follows")

    def first() -> None:
        until(lambda: queue.qsize() > 0)  # it has been asked for
        housekeeper.submit(follows)
        ended.append("first")

    housekeeper._queue = queue
    housekeeper._thread = threading.Thread(target=housekeeper._run, name="keeps-house")
    queue.thread = "keeps-house"
    queue.put(first)
    housekeeper._thread.start()
    housekeeper.wait_idle()
    assert ended == ["first", "follows"]
    housekeeper.close()
