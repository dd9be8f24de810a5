"""Where the suites are kept, and how a command that fills that place is run."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

BUILD_TIMEOUT_S = 1800


class Missing(Exception):
    """A suite cannot be had here; the message says why."""


class NotInstalled(Missing):
    """A language or a tool that the suite is built with is not on this machine."""


def cache() -> Path:
    """The folder that outlives the run, outside the tree."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "segbroker-tests"


@contextmanager
def unfinished(place: Path) -> Iterator[Path]:
    """A folder to fill, that becomes `place` at the end: an interrupted run leaves nothing half."""
    work = place.with_name(f"{place.name}.unfinished")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    yield work
    work.rename(place)


def need(*programs: str) -> None:
    """Raise NotInstalled unless all of these can be run."""
    for program in programs:
        if shutil.which(program) is None:
            raise NotInstalled(f"{program} is not installed")


def go() -> str:
    """Go's program, in the path or where Go installs itself.  Raises NotInstalled."""
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        raise NotInstalled("go is not installed")
    return found


def run(command: Sequence[str], folder: Path) -> str:
    """Run a command in a folder; its output.  Raises Missing when it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise Missing(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")
    return done.stdout


def want_headers(packages: Mapping[str, str]) -> None:
    """Install the Debian packages whose headers are missing, where this may be done.

    Without them what is built does less, and the tests that want it are skipped by themselves.
    """
    # Some lie in a folder that is named after the kind of machine.
    folders = [Path("/usr/include"), *Path("/usr/include").glob("*-linux-gnu")]
    missing = [
        package
        for header, package in packages.items()
        if not any((folder / header).exists() for folder in folders)
    ]
    if missing and shutil.which("apt-get") is not None and os.geteuid() == 0:
        run(["apt-get", "update", "-qq"], Path("/"))
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], Path("/"))
