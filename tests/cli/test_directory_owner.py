"""What root does to a data directory of another user: its broker can open it afterwards."""

import os
import pwd
from pathlib import Path
from tempfile import gettempdir

import pytest

from segbroker.broker.configuration.config import merge
from segbroker.broker.core import wall_ms
from segbroker.broker.peers.listener import certificates_of
from segbroker.cli.exit_codes import ExitCode
from segbroker.cli.failures import explain
from segbroker.client import Producer
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.errors import StorageError
from segbroker.segments.settings.topic_config import TopicConfig

from ..support.certificates import Authority
from ..support.daemon import running
from .conftest import in_process, segbroker

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def give(folder: Path) -> None:
    """To nobody, with all that is in it; who can get at it."""
    for parent in folder.parents:
        if parent != Path(gettempdir()) and parent.is_relative_to(gettempdir()):
            parent.chmod(0o755)
    for path in (folder.parent, folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)


def of_root(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.stat().st_uid != NOBODY]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a broker of nobody that was killed."""
    with running(tmp_path / "data") as daemon:
        with Producer(daemon.address) as producer:
            producer.send("t", b"v", partition=0).result(60)
        daemon.process.kill()
        daemon.process.wait(60)
    give(tmp_path / "data")
    return tmp_path / "data"


def test_a_user_that_root_adds_leaves_no_file_of_root(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of alice")
    words = ("--data-dir", str(data))
    added = segbroker("user", "add", "alice", "--password-env", "SECRET", *words)
    assert (added.returncode, added.stderr[-19:]) == (ExitCode.OK, b"created user alice\n")
    assert segbroker("user", "list", *words).returncode == ExitCode.OK
    assert not of_root(data)


def test_a_directory_that_root_made_for_another_user_is_his_with_its_first_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of alice")
    (tmp_path / "data").mkdir()
    give(tmp_path / "data")
    (tmp_path / "link-of-root").symlink_to("data")
    words = ("--data-dir", str(tmp_path / "link-of-root"), "--password-env", "SECRET")
    assert segbroker("user", "add", "alice", *words).returncode == ExitCode.OK
    assert not of_root(tmp_path / "data")


def test_a_repair_by_root_leaves_no_file_of_root(data: Path) -> None:
    (log,) = (data / "topics/t/partition_0").glob("*_segment_0.log")
    with log.open("r+b") as file:
        file.write(b"\xff" * 8)
    repaired = segbroker("verify", "--repair", str(data))
    assert b"after the repair:" in repaired.stdout
    assert not of_root(data)


def test_root_repairs_what_its_owner_cannot_get_at(data: Path) -> None:
    data.parent.chmod(0o700)
    os.chown(data.parent, 0, 0)
    assert segbroker("verify", "--repair", str(data)).returncode == ExitCode.OK


def test_what_may_be_a_file_of_somebody_else_is_given_to_nobody(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret"
    outside.write_bytes(b"of root")
    (data / "link").symlink_to(outside)
    (data / "second-name").hardlink_to(outside)
    segbroker("verify", "--repair", str(data))
    assert outside.stat().st_uid == 0


def test_who_may_not_read_a_directory_is_told_that_the_system_refused(data: Path) -> None:
    words = ("verify", str(data))
    assert in_process(*words).returncode == ExitCode.OK  # and everything is imported
    data.parent.chmod(0o755)
    os.seteuid(NOBODY - 1)
    try:
        refused = in_process(*words)
    finally:
        os.seteuid(0)
    assert refused.returncode == ExitCode.SYSTEM
    nobody = pwd.getpwuid(NOBODY).pw_name
    assert refused.stderr.decode().splitlines() == [
        f"Error: {data}: Permission denied",
        f"Hint: {data} belongs to {nobody}, and this is run by user {NOBODY - 1}",
    ]


@pytest.mark.parametrize(
    "words",
    ["dump", "serve --config", "verify", "user list --data-dir"],
)
def test_a_path_that_may_not_be_looked_at_is_not_said_to_be_absent(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    closed = tmp_path / "closed"
    path = closed / ("data" if words in ("verify", "user list --data-dir") else "file.log")
    closed.mkdir()
    path.touch() if path.suffix else path.mkdir()
    in_process(*words.split(), str(path))  # and everything is imported
    for parent in closed.parents:
        if parent != Path(gettempdir()) and parent.is_relative_to(gettempdir()):
            parent.chmod(0o755)
    for folder_mode, refused in ((0o700, closed), (0o755, path)):
        closed.chmod(folder_mode)
        path.chmod(0o700)
        os.seteuid(NOBODY)
        try:
            ended = in_process(*words.split(), str(path))
        finally:
            os.seteuid(0)
        nobody = pwd.getpwuid(NOBODY).pw_name
        said = ended.stderr.decode().splitlines()
        assert said[0].startswith(f"Error: {path}")
        assert said[0].endswith(": Permission denied")
        assert said[1:] == [f"Hint: {refused} belongs to root, and this is run by {nobody}"]
        assert ended.returncode == ExitCode.SYSTEM


def test_a_start_that_meets_a_file_of_root_says_whose_it_is(data: Path) -> None:
    data.parent.chmod(0o755)
    with DiskManager(str(data), flushers=0) as manager:  # and everything is imported
        manager.create_topic("other", 1, TopicConfig())
    give(data)
    (snapshot,) = (data / "meta").iterdir()
    os.chown(snapshot, 0, 0)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(StorageError) as raised:
            DiskManager(str(data), flushers=0).open()
        failure = explain(raised.value, {})
    finally:
        os.seteuid(0)
        os.setegid(0)
    assert failure is not None
    assert failure.code == ExitCode.SYSTEM
    nobody = pwd.getpwuid(NOBODY).pw_name
    assert failure.hint == f"{snapshot} belongs to root, and this is run by {nobody}"


def test_a_key_of_root_is_a_wrong_setting_and_said_with_its_name(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).server(), tmp_path / "key.pem"
    key.write_bytes(certificate.read_bytes())
    key.chmod(0o600)
    give(certificate)
    config = merge(
        {
            "listeners": "SSL://127.0.0.1:0",
            "allow_anonymous_network": True,
            "ssl_certificate": str(certificate),
            "ssl_key": str(key),
        },
        {},
        "",
    )
    os.seteuid(NOBODY)
    try:
        with pytest.raises(OSError, match="Permission denied") as raised:
            certificates_of(config, wall_ms)
        failure = explain(raised.value, {})
    finally:
        os.seteuid(0)
    assert failure is not None
    said = f"ssl_certificate of listener SSL cannot be used ({key}): Permission denied"
    assert (failure.code, str(failure)) == (ExitCode.CONFIG, said)
    nobody = pwd.getpwuid(NOBODY).pw_name
    assert failure.hint == f"{key} belongs to root, and this is run by {nobody}"
