"""`segbroker group` against a real daemon, with a consumer of another make in the group."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from segbroker import client as segbroker
from segbroker.cli.exit_codes import ExitCode

from ..support.daemon import Daemon, running
from .conftest import Run, in_process, start, unread

DEADLINE_S = 60


@contextmanager
def member(daemon: Daemon, topic: str, count: int, **further: str) -> Iterator[Consumer]:
    """A member of a group of the topic's name that has read `count` records and committed."""
    conf = {"auto.offset.reset": "earliest", "enable.auto.commit": False, **further}
    consumer = Consumer({"bootstrap.servers": daemon.address, "group.id": topic, **conf})
    consumer.subscribe([topic])
    ends = time.monotonic() + DEADLINE_S
    seen = 0
    while seen < count:
        assert time.monotonic() < ends
        message = consumer.poll(0.1)
        seen += message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    yield consumer
    consumer.close()


def offsets(run: Run, group: str) -> list[int]:
    facts = json.loads(run("group", "describe", group, "--json").stdout)
    return [row["offset"] for row in facts["partitions"]]


# Of a group in JSON, wherever it is said: docs/cli.md.
KEYS = [
    *("group", "state", "type", "protocol_type", "protocol"),
    *("members", "lag", "lag_seconds", "partitions"),
]


def test_a_group_is_listed_described_moved_and_deleted(
    run: Run, topic: str, daemon: Daemon
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=b"".join(b"%d\n" % n for n in range(20)))
    with member(daemon, topic, 20):
        assert topic in run("group", "list").stdout.decode().split()
        lines = run("group", "list", "--long").stdout.decode().splitlines()
        assert lines[0].split() == ["group", "state", "type", "members", "lag", "seconds"]
        rows = [line.split() for line in lines]
        assert [topic, "Stable", "classic", "1", "0", "0.0", "s"] in rows
        listed = json.loads(run("group", "list", "--long", "--json").stdout)
        assert [one["lag"] for one in listed if one["group"] == topic] == [0]
        facts = json.loads(run("group", "describe", topic, "--json").stdout)
        (short,) = [
            one
            for one in json.loads(run("group", "list", "--json").stdout)
            if one["group"] == topic
        ]
        assert [list(facts), list(short)] == [list(listed[0])] * 2 == [KEYS] * 2
        said = ("group", "state", "type", "protocol_type")
        assert [short[key] for key in KEYS] == [facts[key] if key in said else None for key in KEYS]
        assert facts["state"] == "Stable"
        (one,) = facts["partitions"]
        assert (one["offset"], one["end"], one["lag"]) == (20, 20, 0)
        assert one["member"] == facts["members"][0]["member"]
        refused = run("group", "seek", topic, topic, "start")
        assert refused.returncode == ExitCode.REFUSED
        assert refused.stderr.decode().splitlines() == [
            f"Error: group '{topic}' has members",
            "Hint: stop its consumers first",
        ]
        refused = run("group", "delete", topic, "--yes")
        assert refused.returncode == ExitCode.REFUSED
        assert "has members" in refused.stderr.decode()
        assert "Hint: stop its consumers first" in refused.stderr.decode()
    for position, expected in (
        ("start", 0),
        ("end", 20),
        ("7", 7),
        ("+5", 12),
        ("+50", 20),
        ("-3", 17),
        ("@4000000000000", 20),
        ("99", 20),
    ):
        done = run("group", "seek", topic, topic, position)
        assert done.returncode == 0, done.stderr
        assert offsets(run, topic) == [expected]
        about = f"{position} is outside of the log of partition 0: the nearest offset"
        assert (about in done.stderr.decode()) == (position in ("+50", "99")), done.stderr
    run("group", "seek", topic, topic, "start", "--dry-run")
    text = run("group", "describe", topic).stdout.decode()
    assert text.startswith(f"group {topic}: Empty, 0 members, 0 records behind\n")
    assert run("group", "delete", topic, "--yes").returncode == 0
    gone = run("group", "describe", topic)
    assert gone.returncode == ExitCode.NOT_FOUND
    assert gone.stdout == b""


def test_a_group_that_nobody_was_ever_in_is_one_of_consumers(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    run("group", "seek", topic, topic, "start")
    said = [
        json.loads(run("group", "list", "--json").stdout),
        json.loads(run("group", "list", "--long", "--json").stdout),
        [json.loads(run("group", "describe", topic, "--json").stdout)],
    ]
    kinds = [one["protocol_type"] for rows in said for one in rows if one["group"] == topic]
    assert kinds == ["consumer"] * 3


def test_a_name_that_a_client_made_up_is_on_one_line_and_writes_to_no_terminal(
    run: Run, topic: str, daemon: Daemon
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    name = f"{topic}-ü \n{topic}\t\x1b[2J"
    with segbroker.Admin(daemon.address) as admin:
        admin.commit(name, {(topic, 0): 0})
    shown = f"{topic}-ü \\n{topic}\\t\\x1b[2J"
    assert shown in run("group", "list").stdout.decode().splitlines()
    (row,) = [
        line
        for line in run("group", "list", "-l").stdout.decode().splitlines()
        if line.startswith(f"{topic}-ü")
    ]
    assert row.startswith(f"{shown}  Empty")
    listed = json.loads(run("group", "list", "--json").stdout)
    assert name in [one["group"] for one in listed]
    assert run("group", "delete", name, "--yes").returncode == 0


def test_a_position_that_is_none_is_named(run: Run, topic: str) -> None:
    wrong = run("group", "seek", "g", topic, "yesterday")
    assert wrong.returncode == ExitCode.USAGE
    assert "'yesterday'" in wrong.stderr.decode()
    mistyped = run("group", "seek", "g", topic, "start", "--dryrun")
    assert mistyped.returncode == ExitCode.USAGE
    assert "--dryrun" in mistyped.stderr.decode()
    for text in ("-²", "+" + "9" * 5000):
        no_number = run("group", "seek", "g", topic, text)
        assert (no_number.returncode, b"is not start, end" in no_number.stderr) == (2, True)


def test_a_group_with_members_is_not_moved_and_a_dry_run_says_so(
    run: Run, topic: str, daemon: Daemon
) -> None:
    run("produce", topic, "-p", "0", stdin=b"a\nb\n")
    with member(daemon, topic, 2):
        for words in ([], ["--dry-run"]):
            refused = run("group", "seek", topic, topic, "start", *words)
            assert (refused.returncode, refused.stdout) == (ExitCode.REFUSED, b"")
            assert b"has members" in refused.stderr


def test_a_group_that_stands_nowhere_is_not_moved_from_there(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    moved = run("group", "seek", topic, topic, "-1")
    assert (moved.returncode, moved.stdout) == (ExitCode.NOT_FOUND, b"")
    assert b"has committed nothing of topic" in moved.stderr


def test_an_empty_name_is_no_group(run: Run, topic: str) -> None:
    wrong = run("consume", topic, "-e", "--group", "")
    assert wrong.returncode == ExitCode.USAGE
    assert "--group" in wrong.stderr.decode().splitlines()[-1]


def test_how_far_behind_is_said_in_records_and_in_seconds(
    run: Run, topic: str, daemon: Daemon
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    old_ms = (int(time.time()) - 100) * 1000
    producer = Producer({"bootstrap.servers": daemon.address})
    for n in range(10):
        producer.produce(topic, b"%d" % n, partition=0, timestamp=old_ms + 10_000 * n)
    assert producer.flush(DEADLINE_S) == 0
    run("group", "seek", topic, topic, "--", "4")
    facts = json.loads(run("group", "describe", topic, "--json").stdout)
    (row,) = facts["partitions"]
    assert (row["lag"], facts["lag"]) == (6, 6)
    # The next record is 60 seconds old; the run itself takes some.
    assert 60 <= row["lag_seconds"] == facts["lag_seconds"] < 90
    run("group", "seek", topic, topic, "end")
    (row,) = json.loads(run("group", "describe", topic, "--json").stdout)["partitions"]
    assert (row["lag"], row["lag_seconds"]) == (0, 0)


def test_who_has_committed_nothing_is_not_said_to_be_up_to_date(
    run: Run, topic: str, daemon: Daemon
) -> None:
    run("topic", "create", topic, "--partitions", "3")
    for number, count in ((0, 5), (1, 2)):  # nothing in the third
        run("produce", topic, "-p", str(number), stdin=b"x\n" * count)
    consumer = Consumer({"bootstrap.servers": daemon.address, "group.id": topic})
    consumer.subscribe([topic])
    ends = time.monotonic() + DEADLINE_S
    while len(consumer.assignment()) < 3:
        assert time.monotonic() < ends
        consumer.poll(0.1)

    def said() -> tuple[str, list[str], dict[str, Any]]:
        (first, *_) = run("group", "describe", topic).stdout.decode().splitlines()
        lines = run("group", "list", "--long").stdout.decode().splitlines()
        (row,) = [line.split() for line in lines if line.startswith(f"{topic} ")]
        return first, row[4:], json.loads(run("group", "describe", topic, "--json").stdout)

    first, row, facts = said()
    behind = "0 records behind, not counting 2 partitions where it has no offset"
    assert first == f"group {topic}: Stable, 1 member, {behind}"
    assert row == ["0+?", "-"]
    assert facts["lag_seconds"] is None
    consumer.commit(offsets=[TopicPartition(topic, 1, 1)], asynchronous=False)
    first, row, facts = said()
    assert ": Stable, 1 member, 1 record behind, " in first
    assert first.endswith(" s, not counting 1 partition where it has no offset")
    assert row[0] == "1+?"
    assert facts["lag_seconds"] > 0
    consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    first, row, _ = said()
    assert ": Stable, 1 member, 1 record behind, " in first
    assert "counting" not in first
    assert row[0] == "1"
    consumer.close()


def test_the_ages_of_many_groups_are_read_together_and_to_the_end(
    topic: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What has no record up to the end is known by that, and not by waiting.
    monkeypatch.setattr("segbroker.cli.group_lag.READ_TIMEOUT_MS", 3_600_000)
    old_ms = (int(time.time()) - 100) * 1000
    before = {"early": 0, "same": 0, "later": 2, "marker": 4, "open": 6, "end": 7}
    with segbroker.Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
        with segbroker.Producer(daemon.address, transactional_id=topic) as producer:
            with producer.transaction():
                for n in range(4):
                    record = (topic, b"%d" % n)
                    producer.send(*record, partition=0, timestamp_ms=old_ms + 10_000 * n)
            # A marker at 4; then 5 and 6 of a transaction that is open.
            with suppress(KeyError), producer.transaction():
                producer.send_many(topic, [b"5", b"6"], partition=0)
                producer.flush()
                for name, offset in before.items():
                    admin.commit(f"{topic}-{name}", {(topic, 0): offset})
                listed = in_process("group", "list", "--long", "--json", "-b", daemon.address)
                raise KeyError
        for name in before:
            admin.delete_group(f"{topic}-{name}")
    assert listed.returncode == ExitCode.OK, listed.stderr
    prefix = f"{topic}-"
    ours = {
        one["group"].removeprefix(prefix): one["partitions"][0]
        for one in json.loads(listed.stdout)
        if one["group"].startswith(prefix)
    }
    assert {name: row["lag"] for name, row in ours.items()} == {
        name: 7 - offset for name, offset in before.items()
    }
    assert ours["early"]["lag_seconds"] == ours["same"]["lag_seconds"]
    assert 80 <= ours["later"]["lag_seconds"] <= ours["early"]["lag_seconds"] - 20 < 1_000
    assert (ours["marker"]["lag_seconds"], ours["open"]["lag_seconds"]) == (None, None)
    assert ours["end"]["lag_seconds"] == 0


def test_groups_are_listed_when_one_cannot_be_looked_at(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon, segbroker.Admin(daemon.address) as admin:
        for name in ("flights", "trains"):
            admin.create_topic(name, partitions=1)
            admin.commit(f"of-{name}", {(name, 0): 0})
        (tmp_path / "data/topics/flights/partition_0").rename(tmp_path / "gone")
        listed = in_process("group", "list", "--long", "-b", daemon.address)
        (tmp_path / "gone").rename(tmp_path / "data/topics/flights/partition_0")
    assert [line.split()[:5:2] for line in listed.stdout.decode().splitlines()[1:]] == [
        ["of-flights", "classic", "0+?"],
        ["of-trains", "classic", "0"],
    ]
    assert b"partition 0 of topic 'flights' is not served: " in listed.stderr
    assert listed.returncode == ExitCode.REFUSED, "soon, not when its time is over"


def test_a_group_is_watched_until_ctrl_c(run: Run, topic: str, daemon: Daemon) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=b"".join(b"%d\n" % n for n in range(5)))
    run("group", "seek", topic, topic, "start")
    watch = start(daemon, "group", "describe", topic, "--watch", "--json", "--interval", "0.1")
    assert watch.stdout is not None
    assert json.loads(watch.stdout.readline())["lag"] == 5
    run("group", "seek", topic, topic, "--", "+3")
    while (lag := json.loads(watch.stdout.readline())["lag"]) == 5:
        pass
    assert lag == 2
    watch.send_signal(signal.SIGINT)
    _, errors = watch.communicate(timeout=DEADLINE_S)
    assert (watch.returncode, errors) == (ExitCode.INTERRUPTED, b"")


def test_a_watch_ends_with_its_reader_and_not_with_the_next_look(
    run: Run, topic: str, daemon: Daemon
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("group", "seek", topic, topic, "start")
    watch = start(daemon, "group", "describe", topic, "--watch", "--json", "--interval", "3600")
    try:
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline())["group"] == topic
        watch.stdout.close()  # `| head -1`
        assert watch.wait(DEADLINE_S) == ExitCode.OK
        assert watch.stderr is not None
        assert watch.stderr.read() == b""
    finally:
        watch.kill()
        watch.communicate()


def test_what_fails_is_told_though_nobody_reads_the_output(daemon: Daemon) -> None:
    """`group describe nothing | true`: there is nobody to end with but who watches."""
    code, said = unread(daemon, "group", "describe", "no-such-group")
    assert b"no-such-group" in said
    assert code == ExitCode.NOT_FOUND


def test_a_group_of_the_consumer_protocol_is_described(
    run: Run, topic: str, daemon: Daemon
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=b"1\n")
    with member(daemon, topic, 1, **{"group.protocol": "consumer"}):
        facts = json.loads(run("group", "describe", topic, "--json").stdout)
        assert (facts["type"], facts["protocol"]) == ("consumer", "uniform")
        (row,) = facts["partitions"]
        assert row["member"] == facts["members"][0]["member"]
        assert run("group", "seek", topic, topic, "start").returncode == ExitCode.REFUSED
