"""Tests that come inside the module of a Go library: the source, and how each ended."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from .places import cache, go, run
from .verdicts import Outcome

_ENDED: Final = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) \(", re.MULTILINE)
_OUTCOMES: Final = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.SKIPPED}


def fetch(module: str, version: str, source: Path) -> None:
    """Copy the source of a module to `source`, to be built and changed.  Raises Missing."""
    cache().mkdir(parents=True, exist_ok=True)
    told = run([go(), "mod", "download", "-json", f"{module}@{version}"], cache())
    # What Go keeps cannot be written to, and so neither copied as it is nor taken away.
    shutil.copytree(json.loads(told)["Dir"], source, copy_function=shutil.copyfile)
    for folder in (source, *(one for one in source.rglob("*") if one.is_dir())):
        folder.chmod(0o755)


def ends(chosen: Iterable[str], output: str) -> dict[str, Outcome]:
    """How these tests and their parts ended.

    A panic, or the limit of time, ends them all: who has not said how it ended has failed.
    """
    said = {name: _OUTCOMES[how] for how, name in _ENDED.findall(output)}
    return {**dict.fromkeys(chosen, Outcome.FAILED), **said}


def add_users(data: Path, passwords: Mapping[str, str]) -> None:
    """Make users who may log in, in the folder of a daemon that is not running yet."""
    for name, password in passwords.items():
        # Not by name: in the path there may be another one, or none.
        program = [sys.executable, "-m", "segbroker.cli"]
        add = [*program, "user", "add", name, "--password-stdin", "--data-dir", str(data)]
        subprocess.run(add, input=password, text=True, check=True, stdout=subprocess.DEVNULL)
