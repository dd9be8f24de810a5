"""Data directories of earlier versions, opened by this one: `--from COMMIT`.

    that version  --- filled by librdkafka ---> SIGKILL or SIGTERM ---> this version
                                                 everything is there, clients go on, verify is clean

With `--back` the other way round: this version writes, that one opens; it may refuse, never lose.
A version is built out of the repository (tests/soak/earlier.py) and kept.  One line per version and
way of ending; the directory of one with a finding stays.
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException

from ..support import daemon
from . import earlier
from .folders import put_away
from .upgrade_content import Content
from .upgrade_seen import Seen, lost

_ERROR = re.compile(r"[ |]*[\w.]*Error(Group)?: |[ |]*segbroker\.[\w.]+: ")


@dataclass
class Found:
    """What came out of one upgrade."""

    wrong: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    refused: str = ""


def upgraded(packages: Path, data: Path, how: signal.Signals) -> Found:
    """Fill with that version, end it, go on with this one."""
    flags = _flags(earlier.flags_of(packages))
    old = earlier.start(packages, data, *flags)
    content, before, found = _filled(old, how)
    new = daemon.start(data, *flags)
    try:
        found.wrong += lost(before, content.see())
        found.wrong += content.go_on()
        between = content.see()
    finally:
        content.close()
        new.stop()
    found.wrong += _verified(data)
    new.again()
    try:
        found.wrong += [f"after one more start: {one}" for one in lost(between, content.see())]
    finally:
        new.stop()
    return found


def taken_back(packages: Path, data: Path, how: signal.Signals) -> Found:
    """Fill with this version, end it, have that one open it: it refuses, or nothing is lost."""
    flags = _flags(earlier.flags_of(packages))
    content, before, found = _filled(daemon.start(data, *flags), how)
    try:
        old = earlier.start(packages, data, *flags)
    except daemon.NoReadyLine as exc:
        content.close()
        found.refused = _why(str(exc))
        return found
    try:
        found.wrong += lost(before, content.see())
    finally:
        content.close()
        old.stop()
    return found


def _filled(broker: daemon.Daemon, how: signal.Signals) -> tuple[Content, Seen, Found]:
    content = Content(broker.address)
    try:
        content.fill()
        before = content.see()
    except BaseException:
        broker.stop(signal.SIGKILL)
        raise
    broker.stop(how)
    return content, before, Found(lacking=content.lacking)


def _flags(told: str) -> list[str]:
    if "--authorizer" not in told:
        return []
    return ["--authorizer", "acl", "--super-users", "User:ANONYMOUS"]


def _why(log: str) -> str:
    """The line of a log that says why it ended: the last that names an error."""
    named = [line for line in log.splitlines() if _ERROR.match(line)]
    return (named or log.splitlines())[-1].strip(" |+-")


def _verified(data: Path) -> list[str]:
    command = [sys.executable, "-m", "segbroker.cli", "verify", str(data)]
    done = subprocess.run(command, capture_output=True, text=True)
    return [] if done.returncode == 0 else [f"verify: {done.stdout[-500:]} {done.stderr[-500:]}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.upgrade", description=__doc__)
    parser.add_argument("--from", dest="commits", action="append", required=True, metavar="COMMIT")
    parser.add_argument("--back", action="store_true", help="this version writes, that one opens")
    options = parser.parse_args()
    failed = 0
    for name in options.commits:
        commit = earlier.commit_of(name)
        packages = earlier.built(commit)
        for how in (signal.SIGKILL, signal.SIGTERM):
            folder = Path(tempfile.mkdtemp(prefix=f"upgrade-{commit}-"))
            run = taken_back if options.back else upgraded
            try:
                found = run(packages, folder / "data", how)
            except (AssertionError, KafkaException) as exc:
                found = Found(wrong=[f"{type(exc).__name__}: {str(exc)[-800:]}"])
            end = (found.refused and f"refused: {found.refused}") or f"{len(found.wrong)} wrong"
            lacking = f"; without: {', '.join(found.lacking)}" if found.lacking else ""
            print(f"{commit}, {how.name}: {end}{lacking}", flush=True)
            put_away(folder, found.wrong, is_clean=not found.wrong)
            failed += bool(found.wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
