"""Daemons that a program in another language starts and ends."""

import json
import socket
from pathlib import Path
from typing import Any

from .daemon_door import door, settings


def ask(port: int, asked: dict[str, Any]) -> dict[str, Any]:
    with socket.create_connection(("127.0.0.1", port)) as sock, sock.makefile("rw") as lines:
        lines.write(json.dumps(asked) + "\n")
        lines.flush()
        said: dict[str, Any] = json.loads(lines.readline())
        return said


def is_up(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_settings_of_kafka_are_handed_on_as_near_as_ours_allow() -> None:
    assert settings(
        {
            "num.partitions": "7",
            "auto.create.topics.enable": "false",
            "super.users": "User:a",
            "fetch.max.bytes": "2147483647",
            "listeners": "PLAINTEXT://localhost:0",
            "num.io.threads": "3",
            "producer.id.expiration.check.interval.ms": "500",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        }
    ) == {
        "partitions": 7,
        "auto_create_topics": False,
        "super_users": "User:a",
        "fetch_bytes_max": 1 << 30,
        "housekeeping_interval_ms": 200,
    }
    assert settings({}) == {"housekeeping_interval_ms": 10_000}
    offered = {"sasl.enabled.mechanisms": "GSSAPI,PLAIN", "ssl.enabled.protocols": "TLSv1.3"}
    assert settings(offered) == {
        "housekeeping_interval_ms": 10_000,
        "sasl_mechanisms": "PLAIN,SCRAM-SHA-256",  # the harness logs in by the latter
        "ssl_version_min": "TLSv1.3",
    }


def test_the_harness_may_delete_topics_whatever_a_test_sets() -> None:
    assert "delete_topics" not in settings({"delete.topic.enable": "false"})


def test_a_daemon_is_started_ended_and_started_again_on_its_ports(tmp_path: Path) -> None:
    broker = {
        "node": 3,
        "properties": {"num.partitions": "2"},
        "listeners": [{"name": "CLIENT", "protocol": "PLAINTEXT"}],
    }
    with door(tmp_path) as daemons:
        said = ask(daemons.port, {"do": "start", "test": "Some.test", "broker": broker})
        port = said["ports"]["CLIENT"]
        assert said["client"] == {"bootstrap.servers": f"localhost:{said['ports']['HARNESS']}"}
        handle = said["handle"]
        assert is_up(port)
        assert ask(daemons.port, {"do": "stop", "handle": handle}) == {}
        assert not is_up(port)
        assert ask(daemons.port, {"do": "again", "handle": handle}) == {}
        assert is_up(port)
        count = {"do": "count", "handle": handle, "event": "broker_started"}
        assert ask(daemons.port, count) == {"count": 2}
        assert ask(daemons.port, {"do": "end", "handle": handle}) == {}
        assert not is_up(port)
        assert daemons.faults == {}
    assert (tmp_path / f"{handle}.log").read_text()


def test_what_cannot_be_done_is_said_and_what_is_left_is_ended(tmp_path: Path) -> None:
    broker = {
        "node": 1,
        "properties": {},
        "listeners": [{"name": "CLIENT", "protocol": "PLAINTEXT"}],
    }
    with door(tmp_path) as daemons:
        assert "KeyError" in ask(daemons.port, {"do": "stop", "handle": "none"})["error"]
        said = ask(daemons.port, {"do": "start", "test": "Some.test", "broker": broker})
        assert is_up(said["ports"]["CLIENT"])
    assert not is_up(said["ports"]["CLIENT"])
