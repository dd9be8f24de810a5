"""The threads of the storage: who waits for them waits for all of it, and they go on."""

import threading
from queue import SimpleQueue

import pytest

from segbroker.segments import background
from segbroker.segments.background import Flushers, FlushState, Housekeeper, Task

from .wal_writing import no_memory_for_lines, until


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


class Flushed:
    """What is flushed has no memory the first time, and is asked for once more meanwhile."""

    def __init__(self, flushers: Flushers) -> None:
        self.flush_state = FlushState.IDLE
        self.flushes = 0
        self._flushers = flushers

    def flush(self) -> None:
        self.flushes += 1
        if self.flushes == 1:
            self._flushers.request(self)
            raise MemoryError


class Scarce(SimpleQueue[object]):
    """Finds no memory in all but the first, as often as `left` says."""

    left = 3
    puts = 0

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        self.puts += 1
        if self.puts > 1 and self.left:
            self.left -= 1
            raise MemoryError
        super().put(item, block, timeout)


def test_threads_go_on_where_there_is_no_memory_for_their_work_nor_to_tell_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "SimpleQueue", Scarce)

    def runs_out() -> None:
        raise MemoryError

    ended = threading.Event()
    with no_memory_for_lines():
        flushers, housekeeper = Flushers(1), Housekeeper(threaded=True)
        flushed = Flushed(flushers)
        flushers.request(flushed)
        until(lambda: flushed.flushes == 2)
        housekeeper.submit(runs_out)
        for _ in range(Scarce.left):
            with pytest.raises(MemoryError):
                housekeeper.submit(ended.set)
        housekeeper.submit(ended.set)
        assert ended.wait(60)
        flushers.close()
        housekeeper.close()
    assert flushed.flush_state is FlushState.IDLE
