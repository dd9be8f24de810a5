"""File systems on block devices of our own: one that is recorded, and copies of it.

    recorded    FUSE file -> loop device -> ext4, xfs or btrfs, mounted; what it is told is noted;
                a fresh one, or the disk that a power cut left
    mounted     an image, mounted as a start behind a power cut finds it
    reboot      what runs a program as it would run behind another boot of the machine

Needs root, /dev/fuse, loop devices, and pyfuse3 (installed on first use); `require` skips what
cannot be had.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from segbroker.segments.disk.posix import BOOT_ID

from ..support.releases import Release, interpreter
from ..support.scenario import ROOT
from ..support.tools import require as require_program

SERVER: Final = "tests.faults.recording_device"
PYFUSE3: Final = Release("3.4.0", ("pyfuse3==3.4.0",))
COMMAND_TIMEOUT_S: Final = 120
PAUSE_S: Final = 0.05


@dataclass(frozen=True)
class FileSystem:
    """How one is made, and mounted.

    Attributes:
        program, package: what makes it, and Debian's package of that.
        flags: of the program.
        options: of mount.
        size: bytes of the smallest that is made.
    """

    program: str
    package: str
    flags: Sequence[str]
    options: str
    size: int


FILE_SYSTEMS: Final = {
    "ext4": FileSystem("mkfs.ext4", "e2fsprogs", ("-q", "-E", "nodiscard"), "", 256 << 20),
    # Sizes may be durable before what is written there; nothing is written out for a rename.
    "ext4-writeback": FileSystem(
        *("mkfs.ext4", "e2fsprogs", ("-q", "-E", "nodiscard")),
        "data=writeback,noauto_da_alloc,commit=1",
        256 << 20,
    ),
    # Journalled itself, what is written is in the order of the names; blocks are a quarter.
    "ext4-journal": FileSystem(
        *("mkfs.ext4", "e2fsprogs", ("-q", "-E", "nodiscard", "-b", "1024")),
        "data=journal",
        256 << 20,
    ),
    "ext4-1k": FileSystem(
        "mkfs.ext4", "e2fsprogs", ("-q", "-E", "nodiscard", "-b", "1024"), "", 256 << 20
    ),
    "xfs-1k": FileSystem("mkfs.xfs", "xfsprogs", ("-q", "-K", "-b", "size=1024"), "", 320 << 20),
    "xfs": FileSystem("mkfs.xfs", "xfsprogs", ("-q", "-K"), "", 320 << 20),
    "btrfs": FileSystem("mkfs.btrfs", "btrfs-progs", ("-q", "-K"), "", 320 << 20),
}


def require(cache: Path) -> Path:
    """The Python that serves a device; skips the test where it cannot be done.

    cache: a folder that outlives the run.
    """
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not Path(device).exists():
            pytest.skip(f"there is no {device}")
    require_program("fusermount3", "fuse3")
    require_program("pkg-config", "pkg-config")
    if subprocess.run(["pkg-config", "--exists", "fuse3"], check=False).returncode != 0:
        _run("apt-get", "install", "-y", "-q", "libfuse3-dev")  # for the first use of pyfuse3
    return interpreter(PYFUSE3, cache)


@contextmanager
def recorded(folder: Path, kind: str, python: Path, *, image: Path | None = None) -> Iterator[Path]:
    """A file system under `folder`, mounted at what is given; `folder/log` has all that its device
    was told.

    kind: of FILE_SYSTEMS.  python: of `require`.  image: what the device has at first, and the
    first that is noted is how its journal is replayed; None: a fresh file system.
    """
    how = FILE_SYSTEMS[kind]
    require_program(how.program, how.package)
    disk, content, mount = folder / "device", folder / "content", folder / "mount"
    for each in (disk, mount):
        each.mkdir()
    if image is None:
        blank(content, how.size)
    else:
        copy_sparse(image, content)
    command = [str(word) for word in (python, "-m", SERVER, disk, content, folder / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "mounted\n"
            loop = _run("losetup", "-f", "--show", disk / "disk").strip()
            try:
                if image is None:
                    _run(how.program, *how.flags, loop)
                _run("mount", *_options(how.options), loop, mount)
                try:
                    yield mount
                finally:
                    _let_go("umount", mount)
            finally:
                _run("losetup", "-d", loop)
            _let_go("fusermount3", "-u", disk)
            server.wait(COMMAND_TIMEOUT_S)
        finally:
            server.kill()  # only where it could not be unmounted


@contextmanager
def mounted(image: Path, kind: str, mount: Path) -> Iterator[None]:
    """The file system of an image, its journal replayed by the kernel, as after any power cut."""
    mount.mkdir(exist_ok=True)
    options = ",".join(filter(None, ("loop", FILE_SYSTEMS[kind].options)))
    _run("mount", *_options(options), image, mount)
    try:
        yield
    finally:
        _let_go("umount", mount)


def reboot(folder: Path) -> Sequence[str]:
    """A command that runs others: to them the machine was booted since, the same boot for all."""
    boot_id = folder / "boot_id"
    boot_id.write_text(f"{uuid4()}\n")
    script = f'mount --bind "$0" {BOOT_ID} && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", script, str(boot_id))


def blank(path: Path, size: int) -> None:
    """A file of so many zeros, which are not written."""
    with path.open("wb") as file:
        file.truncate(size)


def copy_sparse(source: Path, target: Path) -> None:
    """Holes stay holes."""
    _run("cp", "--sparse=always", source, target)


def _options(options: str) -> Sequence[str]:
    return ("-o", options) if options else ()


def _let_go(*command: str | Path) -> None:
    """Unmount; who was killed may have a hold on it for a while: of the mounts of a namespace the
    kernel lets go behind its last process."""
    deadline_s = time.monotonic() + COMMAND_TIMEOUT_S
    while True:
        try:
            _run(*command)
            return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(PAUSE_S)


def _run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_TIMEOUT_S,
    )
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise OSError(f"{words}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout
