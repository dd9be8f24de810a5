"""docs/operations.md: what it tells an operator to write, copy and look at works."""

import configparser
import json
import re
import shlex
import shutil
import socket
from pathlib import Path

import pytest

from segbroker.cli.exit_codes import ExitCode
from segbroker.client import Admin, Consumer, Producer

from ..support.daemon import Daemon, launch, ready, running, start
from .conftest import Run, segbroker

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_systemd_hears_when_the_broker_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        under = ("env", f"NOTIFY_SOCKET={tmp_path / 'notify'}")
        daemon = ready(launch(tmp_path / "data", under=under), tmp_path / "data")
        assert manager.recv(100) == b"READY=1"
        assert daemon.stop() == 0
        assert manager.recv(100) == b"STOPPING=1"


def test_a_service_manager_that_is_not_there_is_said_and_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    daemon = start(tmp_path / "data")
    assert daemon.stop() == 0
    assert f"NOTIFY_SOCKET={tmp_path / 'nobody'}: No such file" in daemon.log.read_text()


def test_the_unit_of_the_page_has_flags_and_codes_that_exist() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]  # systemd's names have capitals
    unit.read_string(block("ini"))
    service = unit["Service"]
    program, command, *words = shlex.split(service["ExecStart"])
    assert (Path(program).name, command) == ("segbroker", "serve")
    text = segbroker("serve", "--help").stdout.decode()
    assert all(f"{word} " in text for word in words if word.startswith("--"))
    codes = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert codes == {ExitCode.USAGE, ExitCode.CONFIG}


def test_a_copy_of_the_directory_is_a_backup_that_goes_on_elsewhere(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        with Producer(daemon.address) as producer:
            producer.send_many("orders", [b"1", b"2", b"3"], partition=0)
        with Consumer(daemon.address, "orders", group="billing", start="start") as consumer:
            assert [one.value for one in consumer.poll(max_records=2, timeout_ms=60_000)]
            consumer.commit()
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    with running(tmp_path / "data") as daemon, Producer(daemon.address) as producer:
        producer.send("orders", b"after the backup", partition=0)
    verified = segbroker("verify", str(tmp_path / "backup"))
    assert verified.returncode == ExitCode.OK, verified.stdout
    with running(tmp_path / "backup") as restored:
        with Consumer(restored.address, "orders", group="billing", stop_at_end=True) as consumer:
            assert [record.value for record in consumer] == [b"3"]
        with Producer(restored.address) as producer:
            assert producer.send("orders", b"goes on", partition=0).result(60).offset == 3


def test_what_the_page_counts_is_what_a_broker_tells(run: Run, daemon: Daemon, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "2")
    status = json.loads(run("broker", "status", "--json").stdout)
    assert {"partitions_read_only"} <= status["storage"].keys()
    assert {"shards_failed"} <= status["wal"].keys()
    with Admin(daemon.address) as admin:
        admin.commit(topic, {(topic, 0): 0, (topic, 1): 0})
    source = block("python").replace("127.0.0.1:9092", daemon.address)
    lines: list[str] = []
    exec(
        compile(source, "docs/operations.md", "exec"),
        {"print": lambda *words: lines.append(" ".join(map(str, words)))},
    )
    for partition in (0, 1):
        labels = f'group="{topic}",topic="{topic}",partition="{partition}"'
        assert f"segbroker_lag{{{labels}}} 0" in lines
    series = [line.rpartition(" ")[0] for line in lines]
    assert len(series) == len(set(series))
    assert "segbroker_read_only_partitions 0" in lines
