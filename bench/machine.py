"""What machine this is and how busy: a figure without it is worth nothing."""

import os
import platform
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Machine:
    date: str
    commit: str
    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    versions: str
    load_before: float


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def commit() -> str:
    """The commit that is measured, short, and whether the tree differs from it."""
    dirty = _git("status", "--porcelain", "-uno")
    return (_git("rev-parse", "--short", "HEAD") or "unknown") + (
        " with local changes" if dirty else ""
    )


def describe() -> Machine:
    """The machine, the commit and the load average of the last minute."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    pages = os.sysconf("SC_PHYS_PAGES")
    names = ("confluent-kafka", "trio", "xxhash", "cramjam", "pyarrow")
    return Machine(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=commit(),
        cpu=cpu,
        cores=os.cpu_count() or 1,
        memory_gib=pages * _PAGE / 2**30,
        kernel=platform.release(),
        python=platform.python_version(),
        versions=", ".join(f"{name} {version(name)}" for name in names),
        load_before=os.getloadavg()[0],
    )


def cpu_seconds(pid: int) -> float:
    """User plus system time that the process has used so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mib(pid: int) -> float:
    """Resident memory of the process in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20


def spin_rate() -> float:
    """Loop turns per microsecond of this core now: tells a contended minute from a quiet one."""
    end = time.perf_counter() + 0.2
    turns = 0
    while time.perf_counter() < end:
        turns += 1
    return turns / 0.2e6
