"""The data directory is taken away under a running broker: nothing more is acknowledged, and what
is at its path now is left alone."""

import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from segbroker.cli.exit_codes import ExitCode
from segbroker.client import Admin, Consumer, DeliveryFailed, Producer
from segbroker.client.errors import BrokerError

from ..support.daemon import Daemon, running, start
from ..support.waiting import until
from .conftest import in_process

OFTEN = ("--housekeeping-interval-ms", "20")
CLASSES = ("fsync", "disk", "memory")


def content(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


def send(daemon: Daemon, value: bytes) -> None:
    with Producer(daemon.address) as producer:
        for name in CLASSES:
            producer.send(name, value, partition=0)


def refused(daemon: Daemon) -> None:
    for name in CLASSES:
        with (
            pytest.raises(DeliveryFailed),
            Producer(daemon.address, delivery_timeout_ms=300) as producer,
        ):
            producer.send(name, b"refused", partition=0)


def acknowledged(daemon: Daemon, name: str) -> list[bytes | None]:
    """What is stored, without what nobody was told is: of class `fsync` it may be there."""
    with Consumer(daemon.address, name, start="start", stop_at_end=True) as consumer:
        return [record.value for record in consumer if record.value != b"refused"]


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A directory with a topic of each class and a record in it; `backup` beside it is a copy."""
    path = tmp_path / "data"
    with running(path) as daemon:
        with Admin(daemon.address) as admin:
            for name in CLASSES:
                admin.create_topic(name, partitions=1, config={"durability": name})
        send(daemon, b"saved")
    shutil.copytree(path, tmp_path / "backup")
    yield path
    path.with_suffix(".log").unlink(missing_ok=True)


def test_a_backup_put_in_its_place_is_left_alone_and_told(data: Path, tmp_path: Path) -> None:
    daemon = start(data, *OFTEN)
    send(daemon, b"later")
    away = data.rename(tmp_path / "away")
    shutil.copytree(tmp_path / "backup", data)
    until(lambda: bool(daemon.events("data_directory_gone")))
    refused(daemon)
    with Admin(daemon.address) as admin, pytest.raises(BrokerError):
        admin.create_topic("new", partitions=1)
    status = in_process("broker", "status", "--check", "-b", daemon.address)
    assert status.returncode == ExitCode.ATTENTION
    why = f"{data} is not the data directory that was opened: it was removed, moved"
    assert why in status.stdout.decode()
    assert daemon.stop() == ExitCode.SYSTEM
    assert why in daemon.log.read_text().splitlines()[-2]  # and a hint
    assert content(data) == content(tmp_path / "backup")
    with running(away) as again:
        assert all(acknowledged(again, name) == [b"saved", b"later"] for name in CLASSES)


def test_writing_resumes_when_it_is_back(data: Path, tmp_path: Path) -> None:
    with running(data, *OFTEN) as daemon:
        send(daemon, b"later")
        data.rename(tmp_path / "away")
        until(lambda: bool(daemon.events("data_directory_gone")))
        refused(daemon)
        (tmp_path / "away").rename(data)
        until(lambda: bool(daemon.events("data_directory_back")))
        send(daemon, b"resumed")
        expected = [b"saved", b"later", b"resumed"]
        assert all(acknowledged(daemon, name) == expected for name in CLASSES)
    assert in_process("verify", str(data)).returncode == ExitCode.OK


def test_one_that_was_removed_gets_no_file_back(data: Path) -> None:
    daemon = start(data, *OFTEN)
    shutil.rmtree(data.rename(data.with_name("away")))
    until(lambda: bool(daemon.events("data_directory_gone")))
    shutil.rmtree(data, ignore_errors=True)  # what was made before it noticed
    refused(daemon)
    assert daemon.stop() == ExitCode.SYSTEM
    assert not data.exists()
