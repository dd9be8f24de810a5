"""docs/operations.md: what it tells an operator to write, copy and look at works."""

import configparser
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from segbroker.cli.exit_codes import ExitCode
from segbroker.client import Consumer, Producer

from ..support.daemon import launch, ready, running, start
from ..support.scrape import scrape
from .conftest import COMMAND, segbroker

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


def test_a_log_that_is_cut_off_while_the_broker_writes_it_begins_with_the_next_line(
    tmp_path: Path,
) -> None:
    words = ("serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    log = tmp_path / "broker.log"
    with log.open("w") as sink:  # as by `2> broker.log`, which appends nothing
        process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=sink)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"segbroker listening on ")
        os.truncate(log, 0)  # as logrotate does with `copytruncate`
        process.terminate()
        assert process.wait(60) == 0
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[-2:] == ["drain_began", "broker_stopped"]


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
    assert codes == {ExitCode.USAGE, ExitCode.CONFIG, ExitCode.DAMAGED}, "a restart mends none"
    assert int(service["RestartSec"]) * 5 > 10, "systemd gives up after 5 starts within 10 s"


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


def test_the_metrics_page_has_the_numbers_of_broker_status(topic: str, tmp_path: Path) -> None:
    with running(tmp_path / "data", "--metrics-listen", "127.0.0.1:0") as daemon:
        with Producer(daemon.address) as producer:
            producer.send_many(topic, [b"1", b"2", b"3"], partition=0)
        (event,) = daemon.events("metrics_listening")
        for _ in range(20):  # what is still written behind it may come between the two
            told_status = segbroker("broker", "status", "-b", daemon.address, "--json")
            told = on_the_page(json.loads(told_status.stdout))
            page = scrape(event["address"])
            shown = {name: page.value(name) for name in told}
            if shown == told:
                break
    assert told["segbroker_produced_bytes_total"] > 0
    assert shown == told


def on_the_page(status: dict[str, Any]) -> dict[str, float]:
    """Numbers of `broker status`, by their names on the page."""
    storage, wal, scrub = status["storage"], status["wal"], status["scrub"]
    return {
        "segbroker_partitions_read_only": storage["partitions_read_only"],
        "segbroker_partitions_not_served": len(status["not_opened"]),
        "segbroker_metadata_unsettled": status["metadata_unsettled"] is not None,
        "segbroker_wal_shards_failed": wal["shards_failed"],
        "segbroker_scrub_errors_total": scrub["errors"],
        "segbroker_recovery_offsets_lost_total": status["recovery"]["counts"]["offsets_lost"],
        "segbroker_unsynced_bytes": status["unsynced_bytes"],
        "segbroker_produced_bytes_total": status["counters"]["produced_bytes"],
        "segbroker_wal_frames_total": wal["frames_written"],
        "segbroker_wal_written_bytes_total": wal["bytes_written"],
        "segbroker_log_bytes": storage["log_bytes"],
        "segbroker_partitions": status["partitions"],
    }
