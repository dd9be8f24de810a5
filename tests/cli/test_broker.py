"""`segbroker broker` against a real daemon."""

import json
import shutil
import signal
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from segbroker.cli.broker_status import concerns
from segbroker.cli.exit_codes import ExitCode
from segbroker.client import Admin
from segbroker.client.errors import LeaderNotAvailable

from ..support.certificates import Authority
from ..support.daemon import running, start
from ..support.ports import keep_port
from ..support.scrape import scrape
from ..support.waiting import until, within_one_of
from .conftest import in_process, segbroker, unread


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a daemon whose settings are changed."""
    with running(tmp_path_factory.mktemp("broker") / "data", "--slots-max", "600") as daemon:
        yield daemon.address


def test_settings_are_changed_described_and_taken_back(address: str) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        done = in_process("broker", *words, "-b", address)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    assert run("alter", "-c", "max.connections=77", "-c", "groups_max=9") == (
        0, "", "changed max.connections, groups_max\n",
    )  # fmt: skip
    assert run("alter", "--every", "-c", "slots_max=50")[0] == 0
    out = run("describe")[1]
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert rows["connections_max"] == ["77", "set", "here", "while", "running"]
    assert rows["slots_max"] == ["50", "set", "for", "all", "while", "running"]
    assert rows["listen"] == [address, *["flag,", "variable", "or", "file", "by", "a", "restart"]]
    assert "lanes" not in rows
    found = json.loads(run("describe", "--all", "--json")[1])
    assert (found["lanes"]["source"], found["lanes"]["is_read_only"]) == ("default", True)
    assert found["initial_password"]["value"] is None
    assert "max.connections" not in found
    assert list(json.loads(run("describe", "--every", "--json")[1])) == ["slots_max"]

    assert run("alter", "--unset", "connections_max", "--unset", "groups_max")[0] == 0
    assert run("alter", "--every", "--unset", "slots_max")[0] == 0
    _, out, _ = run("describe", "--json")
    assert json.loads(out)["slots_max"]["value"] == "600"
    assert "connections_max" not in json.loads(out)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], ExitCode.USAGE, "nothing to change"),
        (["-c", "lanes=3"], ExitCode.CONFIG, "lanes is read at the start"),
        (["-c", "no_such=3"], ExitCode.CONFIG, "there is no broker setting 'no_such'"),
        (["-c", "slots_max=none"], ExitCode.CONFIG, "'none' is not a whole number"),
        (["-c", "slots_max"], ExitCode.USAGE, "is not KEY=VALUE"),
        (["--unset", "no_such"], ExitCode.CONFIG, "there is no broker setting 'no_such'"),
    ],
)
def test_what_cannot_be_changed_is_said(
    address: str, words: list[str], code: ExitCode, says: str
) -> None:
    refused = in_process("broker", "alter", *words, "-b", address)
    assert refused.returncode == code, refused.stderr
    assert says in refused.stderr.decode()
    hint = "Hint: segbroker broker describe --all lists them"
    assert (hint in refused.stderr.decode()) == ("no_such" in says)


def test_a_setting_is_taken_back_by_any_name_that_it_was_set_by(address: str) -> None:
    names = "max.connections", "num.io.threads", "groups_max"
    for every in ([], ["--every"]):
        for name in names:
            words = ["broker", "alter", *every, "-b", address]
            assert in_process(*words, "-c", f"{name}=77").returncode == 0
            for _ in range(2):  # the second time there is nothing to take back
                done = in_process(*words, "--unset", name)
                assert (done.returncode, done.stderr) == (0, f"changed {name}\n".encode())
        shown = in_process("broker", "describe", *every, "--json", "-b", address).stdout
        assert not json.loads(shown).keys() & {"connections_max", "num.io.threads", "groups_max"}


def test_what_is_set_for_a_listener_can_be_taken_back_when_it_is_no_more(tmp_path: Path) -> None:
    names = "PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:0"
    key, flags = "listener_name_extra_connections_max", ("--listeners", names)
    protocols = "--listener-security-protocol-map", "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"
    with running(tmp_path / "data", *flags, *protocols) as daemon:
        for every in ([], ["--every"]):
            words = ["broker", "alter", *every, "-c", f"{key}=7", "-b", daemon.address]
            assert in_process(*words).returncode == 0
    with running(tmp_path / "data") as daemon:
        for every in ([], ["--every"]):
            told = in_process("broker", "describe", *every, "--json", "-b", daemon.address).stdout
            assert json.loads(told)[key]["documentation"].startswith("Without effect")
            words = ["broker", "alter", *every, "--unset", key, "-b", daemon.address]
            assert in_process(*words).returncode == 0
            told = in_process("broker", "describe", *every, "--json", "-b", daemon.address).stdout
            assert key not in json.loads(told)


def test_a_change_survives_a_kill_and_the_log_says_it(tmp_path: Path) -> None:
    killed = start(tmp_path / "data")
    try:
        words = ["-c", "log_level=debug", "-c", "partitions=9"]
        assert in_process("broker", "alter", *words, "-b", killed.address).returncode == 0
    finally:
        killed.process.kill()
        killed.stop()
    assert '"event": "connection_opened"' not in killed.log.read_text().partition("changed")[0]
    with running(tmp_path / "data") as daemon:
        assert in_process("topic", "create", "t", "-b", daemon.address).returncode == 0
        shown = in_process("topic", "describe", "t", "--json", "-b", daemon.address)
        assert len(json.loads(shown.stdout)["partitions"]) == 9
    assert "connection_opened" in daemon.log.read_text().rpartition("broker_started")[2]


def test_the_state_of_a_broker_begins_with_what_needs_a_look(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as daemon:
        said = in_process("broker", "status", "-b", daemon.address).stdout.decode().splitlines()
        assert f"at {daemon.address}, cluster" in said[0]
        assert said[1] == "no problems"
        checked = in_process("broker", "status", "--check", "-b", daemon.address)
        assert checked.returncode == ExitCode.OK
        assert said[-1] == "recovery: nothing to repair since the start"
        words = ["topic", "create", "t", "--partitions", "1", "-c", "segment.records=1"]
        assert in_process(*words, "-b", daemon.address).returncode == 0
        for _ in range(3):
            sent = segbroker("produce", "t", "-b", daemon.address, stdin=b"v" * 40 + b"\n")
            assert sent.returncode == 0, sent.stderr
    _damage(data, segment=1)
    with running(data) as daemon:
        words = ["consume", "t", "-o", "start", "-e", "--on-gap", "skip", "-b", daemon.address]
        assert segbroker(*words).stdout.count(b"v" * 40) == 2
        said = in_process("broker", "status", "-b", daemon.address).stdout.decode().splitlines()
        assert said[1:3] == ["problems:", "  1 offset lost since the start: see recovery below"]
        assert ["gap", "t-0", "1..1", "corruption"] in [line.split() for line in said]
        told = json.loads(in_process("broker", "status", "--json", "-b", daemon.address).stdout)
        assert told["recovery"]["counts"]["offsets_lost"] == 1
        for words in (["--check"], ["--check", "--json"]):
            checked = in_process("broker", "status", *words, "-b", daemon.address)
            assert checked.returncode == ExitCode.ATTENTION
            assert checked.stdout, "it is said as without"
        assert told["topics"] == told["partitions"] == told["partitions_open"] == 1
        assert told["wal"]["shards_failed"] == 0
        assert "performance" not in told


def test_a_log_that_the_start_found_missing_needs_a_look_though_no_offset_is_known_to_be_lost(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    killed = start(data)
    try:
        sent = segbroker("produce", "t", "-b", killed.address, stdin=b"v\n")
        assert sent.returncode == 0, sent.stderr
    finally:
        killed.stop(signal.SIGKILL)
    shutil.rmtree(data / "wal")
    with running(data) as daemon:
        checked = in_process("broker", "status", "--check", "-b", daemon.address)
    said = checked.stdout.decode().splitlines()
    assert checked.returncode == ExitCode.ATTENTION
    assert said[1] == "problems:"
    assert said[2].startswith("  the write-ahead log was damaged or missing: what was acknowledged")


def test_a_topic_that_an_older_copy_of_the_metadata_does_not_know_needs_a_look(
    tmp_path: Path,
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with running(data):
        pass
    shutil.copytree(data, copy)
    with running(data) as daemon:
        sent = segbroker("produce", "since", "-b", daemon.address, stdin=b"v\n")
        assert sent.returncode == 0, sent.stderr
    for part in ("meta", "wal", "witness"):
        shutil.rmtree(data / part)
        shutil.copytree(copy / part, data / part)
    with running(data) as daemon:
        checked = in_process("broker", "status", "--check", "-b", daemon.address)
    said = checked.stdout.decode().splitlines()
    assert checked.returncode == ExitCode.ATTENTION
    assert said[1] == "problems:"
    assert said[2].startswith("  records of a topic that the metadata does not know are in quarant")
    (kept,) = (data / "quarantine").iterdir()
    assert ["unknown_topic", str(kept)] in [line.split() for line in said]


def test_of_many_partitions_that_are_not_served_it_is_said_how_many() -> None:
    rows = [{"topic": "t", "partition": number, "why": "gone"} for number in range(25)]
    info = {
        "storage": {"partitions_read_only": 0},
        "wal": {"shards_failed": 0},
        "scrub": {"errors": 0},
        "cleaner": {"failures": 0},
        "recovery": {"counts": {}},
        "not_opened": rows,
    }
    said = list(concerns(info))
    assert len(said) == 21
    assert said[-1] == "5 more partitions not served: --json lists them"


def test_a_write_that_does_not_end_needs_a_look() -> None:
    info = {
        "storage": {"partitions_read_only": 0},
        "wal": {"shards_failed": 0, "syncs_slow": 12, "stuck_s": 75.5},
        "scrub": {"errors": 0},
        "cleaner": {"failures": 0},
        "recovery": {"counts": {}},
    }
    assert list(concerns(info)) == [
        "the disk is slow: 12 syncs of the write-ahead log took over a second, within a minute",
        "the write-ahead log is stuck: a write has not ended for 1 minute; check the disk",
    ]


def test_files_that_cannot_be_removed_need_a_look() -> None:
    info = {
        "storage": {"partitions_read_only": 0, "not_removed_count": 3},
        "wal": {"shards_failed": 0},
        "scrub": {"errors": 0},
        "cleaner": {"failures": 0},
        "recovery": {"counts": {}},
    }
    assert list(concerns(info)) == [
        "the files of 3 deleted segments or topics cannot be removed, and take room: the log"
        " says why"
    ]


@pytest.mark.parametrize(("days", "is_told"), [(0, False), (400, True)])
def test_a_clock_that_is_far_ahead_needs_a_look(days: int, is_told: bool) -> None:
    info = {
        "clock_held": {"ahead_ms": days * 86_400_000 + 700_000, "left_ms": 3_000_000},
        "storage": {"partitions_read_only": 0},
        "wal": {"shards_failed": 0},
        "scrub": {"errors": 0},
        "cleaner": {"failures": 0},
        "recovery": {"counts": {}},
    }
    said = (
        "the clock is 400 days ahead of where it was: if it is wrong, set it right within"
        " 50 minutes; then what is too old by it is deleted"
    )
    assert list(concerns(info)) == [said] * is_told


def test_what_was_reserved_is_not_told_as_lost() -> None:
    counts = {"gap": 2, "offsets_lost": 2_056_843, "offsets_lost_at_most": 2_056_840}
    info = {
        "storage": {"partitions_read_only": 0},
        "wal": {"shards_failed": 0},
        "scrub": {"errors": 0},
        "cleaner": {"failures": 0},
        "recovery": {"counts": counts},
    }
    assert list(concerns(info)) == [
        "3 offsets lost since the start: see recovery below",
        "at most 2,056,840 offsets lost at the ends of logs (lost_tail): they were reserved, and"
        " how many had a record nobody knows: see recovery below",
    ]


def test_reads_that_the_disk_did_not_answer_need_a_look() -> None:
    info = {
        "storage": {"partitions_read_only": 0},
        "wal": {"shards_failed": 0},
        "failed_reads": {
            "count": 87,
            "newest": {"topic": "t", "partition": 0, "why": "a bad block", "at_ms": 0},
        },
        "scrub": {"errors": 0},
        "cleaner": {"failures": 0},
        "recovery": {"counts": {}},
    }
    (said,) = concerns(info)
    assert said == (
        "87 reads failed since the start, the last one of t-0 at 1970-01-01 00:00:00 UTC:"
        " a bad block; check the disk"
    )


def test_a_partition_that_cannot_be_opened_needs_a_look(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        words = ("-b", daemon.address)
        segbroker("topic", "create", "flights", "--partitions", "2", *words)
        (tmp_path / "data/topics/flights/partition_1").rename(tmp_path / "gone")

        def is_not_delivered(within_s: int) -> None:
            limit = ("-p", "1", "--timeout", str(within_s))
            sent = segbroker("produce", "flights", *limit, *words, stdin=b"value\n")
            assert sent.returncode == ExitCode.UNDELIVERED

        within_one_of((2, 20), is_not_delivered)
        lines = segbroker("broker", "status", *words).stdout.decode().splitlines()
        assert lines[1] == "problems:"
        assert lines[2].startswith("  partition 1 of topic 'flights' is not served: ")
        assert lines[2].endswith("the partition's directory is missing")
        segbroker("topic", "create", "trains", "--partitions", "3", *words)
        told = b"Error: partition 1 of topic 'flights' is not served: "

        def asked(*words_of_it: str) -> list[list[str]]:
            """The rows; the exit code and the reason are those of a partition that is not served:
            soon, not when its time is over."""
            found = in_process(*words_of_it, *words)
            assert told in found.stderr
            assert b"the partition's directory is missing\nHint: segbroker broker" in found.stderr
            assert found.returncode == ExitCode.REFUSED
            return [line.split() for line in found.stdout.decode().splitlines()]

        sent = segbroker("produce", "flights", *words, stdin=b"1\n2\n3\n")
        assert sent.returncode == ExitCode.OK, "what has no key goes to the others"
        with Admin(daemon.address) as admin:
            admin.commit("billing", {("flights", 0): 1, ("flights", 1): 0})
            assert admin.offsets("flights", only_served=True).keys() == {("flights", 0)}
            with pytest.raises(LeaderNotAvailable, match="no broker serves the partition for now"):
                admin.offsets("flights")
            with pytest.raises(LeaderNotAvailable, match="no broker serves the partition for now"):
                admin.delete_records({("flights", 1): 1})
        assert [row[:3] for row in asked("topic", "list", "--long")[1:]] == [
            ["flights", "2", "3+?"],
            ["trains", "3", "0"],
        ]
        described = asked("topic", "describe", "flights")
        assert ["0", "0", "3", "3"] in described
        assert ["1", "?", "?", "?"] in described
        assert [row[0] for row in asked("group", "list", "--long")[1:]] == ["billing"]
        described = asked("group", "describe", "billing")
        assert described[3][:5] == ["flights", "0", "1", "3", "2"]
        assert described[4][:5] == ["flights", "1", "0", "?", "?"]
        trimmed = asked("topic", "trim", "flights", "--before", "1", "--yes")
        assert trimmed[1:] == [["0", "1", "1"]], "what can be trimmed is"
        assert not asked("topic", "trim", "flights", "--before", "1", "-p", "1", "--yes")
        code, said = unread(daemon, "topic", "trim", "flights", "--before", "1", "--yes")
        assert told in said, "also where nobody takes the table"
        assert code == ExitCode.REFUSED
        read = in_process("consume", "flights", "-e", *words)
        assert read.stdout == b"2\n3\n", "all that there is, and then the reason"
        assert b"-1: no broker serves the partition for now; partition 1 of topic" in read.stderr
        assert b"the partition's directory is missing" in read.stderr
        assert read.returncode == ExitCode.REFUSED
        (tmp_path / "gone").rename(tmp_path / "data/topics/flights/partition_1")
        sent = segbroker("produce", "flights", "-p", "1", *words, stdin=b"value\n")
        assert sent.returncode == ExitCode.OK
        lines = segbroker("broker", "status", *words).stdout.decode().splitlines()
        assert lines[1] == "no problems"


def test_a_partition_that_the_start_could_not_open_needs_a_look(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        words = ["topic", "create", "t", "--partitions", "1", "-c", "on.corruption=refuse"]
        words += ["-c", "segment.bytes=512", "-b", daemon.address]
        assert in_process(*words).returncode == 0
        sent = segbroker("produce", "t", "--linger", "0", "-b", daemon.address, stdin=b"one\n" * 90)
        assert sent.returncode == 0, sent.stderr
    # An orderly stop empties the write-ahead log, which would have what is damaged.
    with running(tmp_path / "data") as daemon:
        sent = segbroker("produce", "t", "-b", daemon.address, stdin=b"two\n")
        assert sent.returncode == 0, sent.stderr
        _damage(tmp_path / "data", segment=0)
        read = in_process("consume", "t", "-e", "-b", daemon.address)
        assert read.returncode == ExitCode.REFUSED, read.stderr
        daemon.stop(signal.SIGKILL)
    with running(tmp_path / "data") as daemon:
        said = in_process("broker", "status", "-b", daemon.address).stdout.decode().splitlines()
        listed = in_process("topic", "list", "--long", "-b", daemon.address)
        assert said[1] == "problems:"
        for told in (said[2], listed.stderr.decode().splitlines()[0]):
            assert told.count("partition 0 of topic 't' is not served: ") == 1, told
            assert told.count("served") == 1, told
            assert "read-only" not in told


def test_a_partition_that_takes_no_writes_needs_a_look(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        words = ["topic", "create", "t", "--partitions", "1", "-c", "on.corruption=readonly"]
        assert in_process(*words, "-b", daemon.address).returncode == 0
        sent = segbroker("produce", "t", "-b", daemon.address, stdin=b"one\n" * 3)
        assert sent.returncode == 0, sent.stderr
    _damage(tmp_path / "data", segment=0)
    with running(tmp_path / "data") as daemon:
        refused = segbroker("produce", "t", "-b", daemon.address, stdin=b"more\n")
        assert refused.returncode == ExitCode.UNDELIVERED, refused.stderr
        said = in_process("broker", "status", "-b", daemon.address).stdout.decode().splitlines()
        assert said[1] == "problems:"
        assert said[2].startswith("  partition 0 of topic 't' is read-only: ")


def test_a_listener_that_is_full_needs_a_look(tmp_path: Path) -> None:
    listeners = ("--listeners", "OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0")
    protocols = ("--listener-security-protocol-map", "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT")
    full = "--listener-name-inside-connections-max=1"
    with running(tmp_path / "data", *listeners, *protocols, full) as daemon:
        assert daemon.process.stdout is not None
        host, _, port = daemon.process.stdout.readline().split()[-1].rpartition(":")
        with socket.create_connection((host, int(port))) as inside:
            inside.sendall(bytes.fromhex("0000000a 0012 0000 00000007 0000"))  # ApiVersions
            assert inside.recv(4), "it is one of the listener's"
            said = in_process("broker", "status", "-b", daemon.address).stdout.decode().splitlines()
        assert said[1:3] == ["problems:", "  listener INSIDE is full, with 1 connection"]


def test_a_certificate_that_ends_soon_and_files_that_cannot_be_used_need_a_look(
    tmp_path: Path,
) -> None:
    authority, days = Authority(tmp_path), timedelta(days=1)
    until_s = int((datetime.now(UTC) + 3 * days).timestamp())
    path = authority.server(until=datetime.fromtimestamp(until_s, UTC))
    page = f"127.0.0.1:{keep_port()}"
    flags = ("--listeners", "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "--metrics-listen", page)
    tls = ("--ssl-certificate", str(path), "--ssl-reload-interval-ms", "0")
    with running(tmp_path / "data", *flags, *tls) as daemon:

        def problems() -> list[str]:
            checked = in_process("broker", "status", "--check", "-b", daemon.address)
            said = checked.stdout.decode().splitlines()
            found = [line.strip() for line in said[2:] if line.startswith("  ")]
            assert checked.returncode == (ExitCode.ATTENTION if found else ExitCode.OK)
            return found

        def read_again(event: str) -> dict[str, float]:
            """Of the page, behind one more of this event."""
            count = len(daemon.events(event))
            daemon.process.send_signal(signal.SIGHUP)
            until(lambda: len(daemon.events(event)) > count)
            return scrape(page).of("segbroker_certificate_reload_failed", "listener")

        (soon,) = problems()
        assert soon.startswith("the certificate of listener SSL expires soon: ")
        told = scrape(page).of("segbroker_certificate_expiry_timestamp_seconds", "listener")
        assert told == {"SSL": until_s}
        path.write_text("half a file")
        assert read_again("certificate_not_reloaded") == {"SSL": 1}
        assert problems()[0] == soon, "it is the old one that is in force"
        assert problems()[1].startswith("an older certificate is in force, and a restart would")
        assert problems()[1].endswith("without the certificate or its private key")
        authority.server(until=datetime.now(UTC) - days)
        assert read_again("certificate_reloaded") == {"SSL": 0}
        assert problems()[0].startswith("the certificate of listener SSL has expired: ")
        assert len(problems()) == 1
        authority.server()
        assert read_again("certificate_reloaded") == {"SSL": 0}
        assert problems() == []


def test_a_broker_that_is_full_needs_a_look_and_who_is_refused_is_told_of_it(
    tmp_path: Path,
) -> None:
    limits = ("--connections-max", "2", "--handshake-timeout-ms", "3600000")
    with running(tmp_path / "data", *limits) as daemon:
        where = ("-b", daemon.address)
        with socket.create_connection(daemon.host_and_port):
            said = in_process("broker", "status", *where).stdout.decode().splitlines()
            assert said[1:3] == ["problems:", "  the broker is full, with 2 connections"]
            in_process("broker", "alter", "-c", "connections_max=1", *where)
            refused = in_process("topic", "list", *where)
    assert refused.returncode == ExitCode.UNREACHABLE
    said = refused.stderr.decode().splitlines()
    assert said[-1].endswith("if it has too many connections, its log says so (connection_refused)")


def _damage(data: Path, segment: int) -> None:
    """One bit of a record of topic t."""
    path = data / "topics" / "t" / "partition_0" / f"t_partition_0_segment_{segment}.log"
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1
    path.write_bytes(damaged)


def test_what_is_chosen_for_all_topics_is_said_of_each_and_by_the_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data, "--log-retention-ms", "3d") as daemon:

        def run(*words: str) -> str:
            done = in_process(*words, "-b", daemon.address)
            assert done.returncode == 0, done.stderr
            return done.stdout.decode()

        run("topic", "create", "t", "-c", "segment.ms=7")
        run("broker", "alter", "-c", "log.cleanup.policy=compact,delete")
        rows = [line.split() for line in run("topic", "describe", "t").splitlines()]
        assert ["retention.ms", "259200000", "the", "broker's", "start"] in rows
        assert ["cleanup.policy", "compact,delete", "the", "broker"] in rows
        assert ["segment.ms", "7", "set", "here"] in rows
        facts = json.loads(run("topic", "describe", "t", "--json"))
        sources = {row["key"]: (row["is_default"], row["source"]) for row in facts["config"]}
        assert sources["retention.ms"] == (True, "start")
        assert sources["segment.bytes"] == (True, "default")
        assert sources["segment.ms"] == (False, "topic")
    (snapshot,) = (data / "meta").glob("snapshot-*.msgpack")
    dumped = json.loads(segbroker("dump", str(snapshot), "--json").stdout)
    chosen = {"retention.ms": "259200000", "cleanup.policy": "compact,delete"}
    assert chosen.items() <= dumped["topic_defaults"].items()
