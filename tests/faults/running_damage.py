"""Somebody changes files of a data directory while a broker has it open: no record is lost unsaid.

    life    what a broker does: appends, transactions, reads, syncs, checkpoints, upkeep, scrubs,
            cleans, parks, retention, deletes records and topics; at some moments a file is changed
            (meddled_disk.py); it may be killed at any of its changes of the disk
    end     a kill, a power cut, an orderly stop, one in which something fails, or that is killed
    start   a file may be changed before it; it opens what is left; producers send again what has no
            answer; everything is read, and appended to; and once more

A case comes of its seed.  How it is lived, and judged: damaged_life.py.
"""

import traceback
from collections.abc import Callable
from typing import Final

from segbroker.segments.errors import StorageError

from .damage_ledger import Found, take
from .damaged_life import COMPACTED, TOPICS, DamagedLife
from .listening import listening
from .meddled_disk import Killed

ENDS: Final = (
    *("kill", "kill", "kill", "power cut"),
    *("stop", "stop", "failing stop", "kill in the stop"),
)


class Case(DamagedLife):
    """One seed: what is drawn."""

    @property
    def outcome(self) -> str:
        """What came of it."""
        return "refused" if self.refused else "with a loss" if self.lost else "whole"

    def run(self) -> "Case":
        """All of it."""
        with listening(self.problems, self._hear):
            try:
                self._run()
            except Exception:
                self.problems.append("raised " + traceback.format_exc(limit=-6))
            self._end_threads(self.manager)
        return self

    def _run(self) -> None:
        random = self.random
        if not self._open():
            return
        for name in TOPICS:
            self._create(name)
        if not self._steps(random.randint(5, 25)):
            return
        if random.random() < 0.3:
            self.disk.remember()
        if random.random() < 0.5:
            self._end(random.choice(("kill", "stop", "power cut")))
            if not self._open():
                return
        for _ in range(random.choice((1, 2, 3))):
            if not self._round(is_aimed=random.random() < 0.6):
                return
        self._check("in the end")
        for key in list(self.ledgers):
            self._append(key)
            self._end_transaction(key)
        self._tick()
        self._check("behind appends")
        self._end(random.choice(("kill", "stop")))
        if self._open():
            self._check("behind the last start")

    def _round(self, *, is_aimed: bool) -> bool:
        """Files are changed, and what comes of it; whether there is a broker behind that.

        is_aimed: at the file of the focus that is written, and not much else happens."""
        random = self.random
        if not self._steps(random.choice((1, 3)) if is_aimed else random.randint(0, 12)):
            return False
        if random.random() < 0.3:
            self.disk.remember()
        if random.random() < 0.15:
            return self._break_off()
        self._prepare()
        self._hold()
        is_full = random.random() < 0.2
        if is_full:
            self._fill()
        for _ in range(1 if is_aimed else random.choice((1, 1, 2, 3))):
            self._meddle(is_aimed=is_aimed)
        if is_full and random.random() < 0.8:
            self.disk.full = False
            self._tick()
        if random.random() < 0.5 and not self._live(lambda: self._append(self.focus)):
            return False
        if not self._steps(random.choice((0, 0, 1) if is_aimed else (0, 1, 3, 12))):
            return False
        self._read_held()
        if random.random() < 0.4 and not self._live(self._let_go):
            return False
        for _ in range(random.choice((0, 2, 2))):
            if not self._live(self._tick):
                return False
        if random.random() < 0.3 and not self._live(lambda: self._check("while it runs")):
            return False
        for _ in range(random.choice((1, 1, 2))):
            self._end(random.choice(ENDS))
            if random.random() < 0.15:
                self._meddle()
            if not self._open():
                return False
            if random.random() < 0.5:
                self._check("behind a start")
        return True

    def _steps(self, count: int) -> bool:
        """So many; whether there is a broker behind them."""
        for _ in range(count):
            if self.random.random() < 0.015:
                self._dies_in(self.random.randint(0, 30))
            if not self._live(self._step):
                return False
        self.disk.dies_in = None
        return True

    def _live(self, act: Callable[[], None]) -> bool:
        """Something in which the process may be killed, and started again; whether there is one."""
        try:
            act()
        except Killed:
            self.trace.append("in which it is killed")
            self._end("kill")
            return self._open()
        return True

    def _break_off(self) -> bool:
        """It is killed while the focus is appended to; whose producer asks the next one again, who
        is killed when a file has changed.  Whether there is a broker behind that."""
        self._end("kill")
        if not self._open():
            return False
        self._dies_in(self.random.randint(0, 8))
        if not self._live(lambda: self._append(self.focus)):
            return False
        self.disk.dies_in = None
        ledger = self.ledgers.get(self.focus)
        if ledger is not None and ledger.unanswered is not None:
            self._send(self.focus, ledger.unanswered)
        self._meddle(is_aimed=True)
        self._end("kill")
        return self._open()

    def _prepare(self) -> None:
        """The state in which it is met."""
        assert self.manager is not None
        random, key = self.random, self.focus
        try:
            handler = self.manager.get_handler(*key)
            parks = random.random() < 0.6
            if parks or random.random() < 0.3:
                handler.sync()
            if random.random() < 0.3:
                self.manager.wal.checkpoint()
            if parks:
                self.trace.append(f"park {key}")
                handler.park()
        except (StorageError, OSError) as exc:
            self.trace.append(f"  {type(exc).__name__}: {exc}")

    def _hold(self) -> None:
        """A read is planned here, and done when files have changed under it."""
        assert self.manager is not None
        if self.focus not in self.ledgers:
            return
        try:
            handler = self.manager.get_handler(*self.focus)
            begin, end = handler.log_start_offset, handler.high_watermark
            if begin < end and self.random.random() < 0.5:
                offset = self.random.randrange(begin, end)
                plan = handler.plan_read(offset, 1 << 20)
                self.held = None if plan is None else (self.ledgers[self.focus], offset, plan)
        except (StorageError, OSError) as exc:
            self.trace.append(f"  {type(exc).__name__}: {exc}")

    def _read_held(self) -> None:
        held, self.held = self.held, None
        if held is None:
            return
        ledger, offset, plan = held
        self.trace.append(f"the read of {self.focus} from {offset} on that was planned")
        found = Found()
        try:
            buffer = memoryview(bytearray(plan.size_max))
            take(found, bytes(buffer[: plan.read(buffer)]), offset)
        except (StorageError, OSError) as exc:
            self.trace.append(f"  {type(exc).__name__}: {exc}")
        finally:
            plan.release()
        if self.ledgers.get(self.focus) is ledger:  # else it was deleted meanwhile
            self._judge_rows(self.focus, "planned", found)

    def _let_go(self) -> None:
        """The write-ahead log goes on to other files, and lets go what was in those before."""
        assert self.manager is not None
        others = [key for key in sorted(self.ledgers) if key != self.focus]
        key = self.focus if self.random.random() < 0.5 else self.random.choice(others)
        for _ in range(20):
            self._append(key)
        self.trace.append("checkpoints")
        for _ in range(2):
            self.manager.wal.checkpoint()

    def _fill(self) -> None:
        """The disk is full, and somebody notices."""
        self.disk.full = True
        self.trace.append("full: True")
        self._append(self.focus)

    def _step(self) -> None:
        random, manager = self.random, self.manager
        assert manager is not None
        draw = random.random()
        key = self.focus if random.random() < 0.6 else random.choice(sorted(self.ledgers))
        key = key if key in self.ledgers else random.choice(sorted(self.ledgers))
        self.now_ms += random.choice((1, 100, 2_000))
        try:
            if draw < 0.51:
                for _ in range(random.choice((1, 1, 3, 8))):
                    self._append(key)
            elif draw < 0.53:
                self._send_again(key)
            elif draw < 0.57:
                opened = [one for one, ledger in self.ledgers.items() if ledger.transaction]
                self._end_transaction(random.choice(opened or [key]))
            elif draw < 0.63:
                self._tick()
            elif draw < 0.69:
                manager.get_handler(*key).sync()
            elif draw < 0.74:
                self.trace.append("checkpoint")
                manager.wal.checkpoint()
            elif draw < 0.79:
                self.trace.append(f"park {key}")
                manager.get_handler(*key).park()
            elif draw < 0.84:
                self._read(key, "while it runs")
            elif draw < 0.88:
                self.trace.append("scrub")
                self.scrubber.step(self.now_ms)
            elif draw < 0.91:
                self.trace.append("clean")
                self.cleaner.clean_now(manager.get_handler(COMPACTED, key[1]), self.now_ms)
            elif draw < 0.93:
                self._delete_records(key)
            elif draw < 0.94:
                self._delete(random.choice(("m", key[0])))
            elif draw < 0.945 or (self.disk.full and draw < 0.97):
                self.disk.full = not self.disk.full
                self.trace.append(f"full: {self.disk.full}")
            elif draw < 0.98:
                self.disk.heal(random)
            else:
                self._bring_back()
        except (StorageError, OSError) as exc:
            self.trace.append(f"  {type(exc).__name__}: {exc}")
            self._forget_deleted()
