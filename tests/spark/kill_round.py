"""One SIGKILL of a JVM whose queries stand at their points, and what must be true after it.

Exactly once, said by the checkpoint: with the ends of batch N as `offsets/N` has them, the target
holds, for a reader of committed records, exactly the records of the source before

    the ends of batch N - 1    killed before or after the tasks of batch N wrote
    the ends of batch N        killed after the sink's commit of batch N
    the ends of the last one   killed while the next one was being planned

and never less than after the kill before: a batch that is repeated may be in the target already.

Queries that do not come to their points in time are a finding, which says what each was doing; no
process outlives it.
"""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from .killing import LOOK_INTERVAL_S, POINTS, Plan, is_running
from .topics import Topics

SOURCE_PARTITIONS, TARGET_PARTITIONS = 2, 3
ARRIVAL_TIMEOUT_S = 900
END_TIMEOUT_S = 60
TRIES_COUNT_MAX = 5
# Spark gives a worker ten seconds to start, which a busy machine may not have.
NOT_OURS = "Python worker failed to connect back"
ROOT = Path(__file__).parent.parent.parent


class Finding(Exception):
    """The target is not the source."""


@dataclass
class Copies:
    """Queries that copy a topic each, and the folder with their checkpoints.

    timeout_s: what all of them have to come to their points, with every try.
    java_options: of the drivers' JVMs.
    """

    topics: Topics
    folder: Path
    python: Path
    names: list[str]
    timeout_s: float = ARRIVAL_TIMEOUT_S
    java_options: str = ""
    produced_count: int = 0
    reached: dict[str, dict[int, int]] = field(default_factory=dict)

    def create(self) -> None:
        for name in self.names:
            (self.folder / name).mkdir()
            self.topics.create(f"{name}-source", SOURCE_PARTITIONS)
            self.topics.create(f"{name}-target", TARGET_PARTITIONS)

    def produce(self, count: int) -> None:
        """So many records more into each partition of each source; the key is the partition."""
        first = self.produced_count
        self.produced_count += count
        values = [b"%d" % n for n in range(first, self.produced_count)]
        for name in self.names:
            for partition in range(SOURCE_PARTITIONS):
                self.topics.produce(
                    f"{name}-source", values, partition=partition, key=b"%d" % partition
                )

    def kill(self, chance: Random) -> dict[str, str]:
        """Kill the JVM with every query at its point, and look.  Raises Finding.

        Four queries have the four points, in an order of chance; the next four again.
        """
        points = [
            point
            for _ in self.names[:: len(POINTS)]
            for point in chance.sample(POINTS, len(POINTS))
        ]
        batches = {}
        for name, point in zip(self.names, points, strict=True):
            # The batch that is repeated or comes next, or the one after it.
            batches[name] = chance.randrange(2)
            if point != "latest-offset":
                batches[name] += self._last(name, "commits") + 1
        chosen: dict[str, str | None] = dict(zip(self.names, points, strict=True))
        plan = Plan(
            self.topics.bootstrap,
            str(self.folder),
            chosen,
            batches,
            java_options=self.java_options,
        )
        deadline = time.monotonic() + self.timeout_s
        for _ in range(TRIES_COUNT_MAX):
            if self._run_to_points(plan, deadline):
                break
        for name, point in zip(self.names, points, strict=True):
            if plan.arrived(name).read_text() != point:
                raise Finding(f"{name} did not come to {point}: {self.log()}")
            before = self.reached.get(name, {})
            ends = {n: max(end, before.get(n, 0)) for n, end in self._ends(name, point).items()}
            self.check(name, ends)
            self.reached[name] = ends
        return dict(zip(self.names, points, strict=True))

    def finish(self, master: str) -> None:
        """Run all queries to their ends in a JVM that nobody kills.  Raises Finding."""
        plan = Plan(
            self.topics.bootstrap,
            str(self.folder),
            dict.fromkeys(self.names),
            master=master,
            java_options=self.java_options,
        )
        for _ in range(TRIES_COUNT_MAX):
            with self._running(plan) as process:
                code = process.wait(ARRIVAL_TIMEOUT_S)
                if not code:
                    _wait_for_end(int(plan.jvm_file().read_text()))
            if not code or NOT_OURS not in self.log():
                break
        if code:
            raise Finding(f"the last run ended with {code}: {self.log()}")

    def check(self, name: str, ends: dict[int, int]) -> None:
        """That the target has each partition's records before its end.  Raises Finding."""
        found = self.topics.read(f"{name}-target", sum(ends.values()))
        for partition, end in ends.items():
            values = [row.value for row in found if row.key == b"%d" % partition]
            if values != [b"%d" % n for n in range(end)]:
                raise Finding(
                    f"{name} partition {partition}: {len(values)} records where {end} should be"
                    f" after {self.reached.get(name)}: {values}; {self.log()}"
                )
        if len(found) != sum(ends.values()):
            raise Finding(f"{name}: {len(found)} records, and {ends} should be")

    def log(self) -> str:
        return (self.folder / "queries.log").read_text()

    def _run_to_points(self, plan: Plan, deadline: float) -> bool:
        """Whether all came to their points, and the JVM was killed there."""
        for name in self.names:
            plan.arrived(name).unlink(missing_ok=True)
            plan.status(name).unlink(missing_ok=True)
        with self._running(plan) as process:
            while not all(plan.arrived(name).exists() for name in self.names):
                if process.poll() is not None:
                    if NOT_OURS in self.log():
                        return False
                    raise Finding(f"it ended with {process.returncode}: {self.log()}")
                if time.monotonic() > deadline:
                    raise Finding(f"not all came to their points: {self._doing(plan)}")
                time.sleep(LOOK_INTERVAL_S)
            os.kill(int(plan.jvm_file().read_text()), signal.SIGKILL)
            process.wait(END_TIMEOUT_S)
        return True

    def _running(self, plan: Plan) -> "Driver":
        plan.jvm_file().unlink(missing_ok=True)
        path = self.folder / "plan.json"
        plan.write(path)
        command = [str(self.python), "-m", "tests.spark.killing", str(path)]
        return Driver(command, self, plan.jvm_file())

    def _doing(self, plan: Plan) -> str:
        """What each query was doing, and what the JVM said."""
        said = []
        for name in self.names:
            status = plan.status(name)
            doing = status.read_text() if status.exists() else "not started"
            if plan.arrived(name).exists():
                doing = "it is there"
            planned, committed = self._last(name, "offsets"), self._last(name, "commits")
            said.append(
                f"{name} to {plan.points[name]} of batch {plan.batches[name]}: {doing!r},"
                f" batch {planned} planned, {committed} committed"
            )
        return "; ".join([*said, self.log()])

    def _last(self, name: str, log: str) -> int:
        folder = self.folder / name / "checkpoint" / log
        numbers = [int(file.name) for file in folder.glob("*") if file.name.isdigit()]
        return max(numbers, default=-1)

    def _ends(self, name: str, point: str) -> dict[int, int]:
        """How far the sink is, by the checkpoint of a query that was killed at a point."""
        planned = self._last(name, "offsets")
        batch = planned if point in ("after-commit", "latest-offset") else planned - 1
        if batch < 0:
            return dict.fromkeys(range(SOURCE_PARTITIONS), 0)
        text = (self.folder / name / "checkpoint" / "offsets" / str(batch)).read_text()
        offsets = json.loads(text.splitlines()[-1])[f"{name}-source"]
        return {int(partition): end for partition, end in offsets.items()}


def _wait_for_end(jvm: int) -> None:
    """A JVM ends by itself behind its Python, and may have classes to write until then."""
    deadline = time.monotonic() + ARRIVAL_TIMEOUT_S
    while is_running(jvm) and time.monotonic() < deadline:
        time.sleep(LOOK_INTERVAL_S)


class Driver:
    """The process of the queries; neither it nor its JVM outlives the block."""

    def __init__(self, command: list[str], copies: Copies, jvm_file: Path) -> None:
        self._jvm_file = jvm_file
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYSPARK_PYTHON": str(copies.python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (copies.folder / "queries.log").open("w") as log:
            self._process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self._process

    def __exit__(self, *_: object) -> None:
        if self._jvm_file.exists():
            jvm = self._jvm_file.read_text()
            name = Path("/proc", jvm, "comm")
            # Queries that stand at their points would hold up an end that is asked for.
            with suppress(FileNotFoundError, ProcessLookupError):
                if jvm and name.read_text().strip() == "java":
                    os.kill(int(jvm), signal.SIGKILL)
        self._process.kill()
        self._process.wait()
