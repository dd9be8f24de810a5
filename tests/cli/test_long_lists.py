"""Lists of many topics: how many questions they take.  The number counts, not the time."""

import json
from pathlib import Path

import pytest

from segbroker.client import Admin, Producer, cluster

from ..support.daemon import Daemon, running
from ..support.scrape import scrape
from .conftest import segbroker

COUNT = 120


def requests_of(daemon: Daemon, *words: str) -> tuple[int, str]:
    """How many requests a command takes, and what it prints."""
    (event,) = daemon.events("metrics_listening")
    before = scrape(event["address"]).of("segbroker_requests_total", "api")
    done = segbroker(*words, "-b", daemon.address)
    assert done.returncode == 0, done.stderr
    after = scrape(event["address"]).of("segbroker_requests_total", "api")
    return int(sum(after.values()) - sum(before.values())), done.stdout.decode()


def test_a_long_list_asks_about_many_topics_at_a_time(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--metrics-listen", "127.0.0.1:0") as daemon:
        names = [f"t{number:03}" for number in range(COUNT)]
        with Admin(daemon.address) as admin:
            for name in names:
                admin.create_topic(name, partitions=2)
        with Producer(daemon.address) as producer:
            producer.send_many(names[-1], [b"1", b"2"], partition=1)
        table_requests, table = requests_of(daemon, "topic", "list", "--long")
        json_requests, text = requests_of(daemon, "topic", "list", "--long", "--json")
        alone = json.loads(
            segbroker("topic", "describe", names[-1], "--json", "-b", daemon.address).stdout
        )
    rows = [line.split() for line in table.splitlines()[1:]]
    assert rows == [[name, "2", "2" if name == names[-1] else "0", "fsync"] for name in names]
    assert [fact["name"] for fact in json.loads(text)] == names
    assert json.loads(text)[-1] == alone
    assert max(table_requests, json_requests) < COUNT / 4


def test_an_admin_asks_about_more_topics_than_a_client_keeps_in_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "TOPICS_COUNT_MAX", COUNT * 2)
    names = [f"t{number:03}" for number in range(COUNT * 3)]
    with running(tmp_path / "data") as daemon, Admin(daemon.address) as admin:
        for name in names:
            admin.create_topic(name, partitions=1)
        assert [tp.topic for tp in admin.offsets(names, "end")] == names
        for name in names:
            assert len(admin.offsets(name)) == 1
