"""A daemon whose data is in memory says so, at the start and to whoever asks."""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from segbroker.broker.configuration.file_system import file_system_of
from segbroker.cli.exit_codes import ExitCode
from segbroker.cli.failures import explain
from segbroker.segments.directory.manager import DiskManager

from ..support.daemon import Daemon, running
from .conftest import segbroker

SHARED_MEMORY = Path("/dev/shm")
LOSES = (
    "tmpfs at /dev/shm: it is in memory: a power cut, or a restart of the machine, loses everything"
)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """One whose data is in memory."""
    found = file_system_of(str(SHARED_MEMORY)) if SHARED_MEMORY.is_dir() else None
    if found is None or found[:2] != ("tmpfs", str(SHARED_MEMORY)):
        pytest.skip("there is no tmpfs at /dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder,
        running(Path(folder) / "data") as daemon,
    ):
        yield daemon


def described(topic: str, at: str) -> list[str]:
    return segbroker("topic", "describe", topic, "-b", at).stdout.decode().splitlines()


def test_data_in_memory_is_said_at_the_start_and_beside_the_promise(daemon: Daemon) -> None:
    (told,) = daemon.events("durability_weak")
    (started,) = daemon.events("broker_started")
    assert (told["kind"], told["mount_point"], told["level"]) == ("tmpfs", "/dev/shm", "warning")
    assert started["file_system"] == "tmpfs"
    segbroker("topic", "create", "t", "-b", daemon.address)
    beside = f"  but the data is on               {LOSES}"
    assert beside in described("t", daemon.address)
    status = segbroker("broker", "status", "--check", "-b", daemon.address)
    assert LOSES in status.stdout.decode()
    assert status.returncode == 0


def test_of_a_topic_that_is_in_memory_anyway_it_is_not_said(daemon: Daemon) -> None:
    segbroker("topic", "create", "t", "-c", "durability=ephemeral", "-b", daemon.address)
    lines = described("t", daemon.address)
    assert "  lost when the power is cut       everything" in lines
    assert not any("but the data" in line for line in lines)


@pytest.mark.parametrize(
    ("module", "call", "code", "named", "why"),
    [
        (fcntl, "flock", errno.ENOLCK, "data/LOCK", "No locks available"),
        (os, "fsync", errno.EINVAL, "data", "Invalid argument"),
    ],
)
def test_a_file_system_that_cannot_do_what_is_needed_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    call: str,
    code: int,
    named: str,
    why: str,
) -> None:
    """NFS without its lock service; a program's, or a host's, that syncs no directories."""

    def refused(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    (tmp_path / "data").mkdir()
    monkeypatch.setattr(module, call, refused)
    with pytest.raises(OSError, match=why) as raised:
        DiskManager(str(tmp_path / "data"), flushers=0).open()
    failure = explain(raised.value, {})
    assert failure is not None
    assert (str(failure), failure.code, failure.hint) == (
        f"{tmp_path}/{named}: {why}",
        ExitCode.SYSTEM,
        "its file system has to offer locks (flock) and syncs of files and directories",
    )
