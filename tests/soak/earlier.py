"""An earlier version of segbroker: built out of this repository, and run as a daemon."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from ..peers.places import cache, run, unfinished
from ..support.daemon import Daemon, address_of, log_of, ready

ROOT: Final = Path(__file__).resolve().parents[2]


def commit_of(name: str) -> str:
    """The short hash of a commit, however it is named."""
    told = run(["git", "rev-parse", "--short=7", f"{name}^{{commit}}"], ROOT)
    return told.strip()


def built(commit: str) -> Path:
    """The packages of a commit with its kernel, to be put in front of ours.  Raises Missing."""
    place = cache() / "earlier" / commit
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with unfinished(place) as work:
            source, archive = work / "source", work / "source.tar"
            source.mkdir()
            run(["git", "archive", "-o", str(archive), commit], ROOT)
            shutil.unpack_archive(archive, source, filter="data")
            pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            target = ["--no-deps", "--no-build-isolation", "--target", str(work / "packages")]
            run([*pip, *target, str(source)], work)
            shutil.rmtree(source)
    return place / "packages"


def _command(packages: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    others = {name: text for name, text in os.environ.items() if not name.startswith("SEGBROKER_")}
    command = [sys.executable, "-m", "segbroker.cli", *words]
    return command, {**others, "PYTHONPATH": str(packages)}


def flags_of(packages: Path) -> str:
    """What `serve --help` of that version says."""
    command, environment = _command(packages, "serve", "--help")
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def start(packages: Path, data: Path, *flags: str) -> Daemon:
    """That version on a data directory, at the address that every daemon of ours has there.

    Raises:
        NoReadyLine: it ended instead; the message has its log.
    """
    words = ["serve", "--data", str(data), "--listen", address_of(data), *flags]
    command, environment = _command(packages, *words)
    with log_of(data).open("a") as sink:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=sink, text=True, env=environment
        )
    return ready(process, data, *flags)
