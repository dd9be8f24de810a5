"""`segbroker acl` against a daemon that asks the rules."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from segbroker.cli.exit_codes import ExitCode
from segbroker.client import Acl, Admin

from ..support.daemon import Daemon, running
from .conftest import COMMAND, TIMEOUT_S, Run, environment, segbroker

ADD = ("acl", "add", "--principal", "User:alice", "--operation", "read")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    flags = ("--authorizer", "acl", "--super-users", "User:ANONYMOUS")
    with running(tmp_path_factory.mktemp("acl") / "data", *flags) as daemon:
        yield daemon


@pytest.fixture
def run_guarded(guarded: Daemon) -> Run:
    def run(*words: str) -> "subprocess.CompletedProcess[bytes]":
        return segbroker(*words, env={"SEGBROKER_BOOTSTRAP": guarded.address})

    return run


def rules(run: Run, *words: str) -> list[tuple[str, ...]]:
    rows = json.loads(run("acl", "list", "--json", *words).stdout)
    return [
        (row["principal"], row["operation"], row["resource_type"], row["resource_name"])
        for row in rows
    ]


def test_rules_are_added_listed_and_removed(run_guarded: Run) -> None:
    run = run_guarded
    added = run(*ADD, "--operation", "write", "--topic", "flights*", "--group", "*")
    assert added.returncode == 0, added.stderr
    assert added.stderr == b"added 4 rules\n"
    assert added.stdout == b""
    assert run("acl", "add", "--principal", "User:bob", "--operation", "all", "--topic", "flights",
               "--host", "10.0.0.7", "--deny").returncode == 0  # fmt: skip
    assert rules(run, "--topic", "flights-eu") == [
        ("User:alice", "read", "topic", "flights"),
        ("User:alice", "write", "topic", "flights"),
    ]
    assert ("User:bob", "all", "topic", "flights") in rules(run, "--topic", "flights")
    assert len(rules(run)) == 5
    listed = run("acl", "list", "--principal", "User:bob").stdout.decode().splitlines()
    assert listed[0].split() == ["principal", "host", "permission", "operation", "on", "name"]
    assert listed[1].split() == ["User:bob", "10.0.0.7", "deny", "all", "topic", "flights"]
    assert "flights*" in run("acl", "list").stdout.decode()

    removed = run("acl", "remove", "--principal", "User:alice", "--operation", "write")
    assert removed.stderr == b"removed 2 rules\n"
    assert len(rules(run)) == 3
    removed = run("acl", "remove", "--topic", "flights*")
    assert removed.stderr == b"removed 1 rule\n"
    again = run("acl", "remove", "--topic", "flights*")
    assert again.returncode == ExitCode.NOT_FOUND
    as_kafka_writes_it = ("acl", "add", "--principal", "User:eve", "--operation", "Read")
    assert run(*as_kafka_writes_it, "--topic", "t").returncode == 0
    assert ("User:eve", "read", "topic", "t") in rules(run)
    unasked = run("acl", "remove", "--all")
    assert unasked.returncode == ExitCode.USAGE
    assert "there is no terminal to ask on; give --yes" in unasked.stderr.decode()
    assert len(rules(run)) == 3
    assert run("acl", "remove", "--all", "--operation", "read", "--yes").returncode == 0
    assert run("acl", "remove", "--all", "--yes").returncode == 0
    assert rules(run) == []


def test_a_literal_name_that_ends_in_a_star_is_not_shown_as_a_prefix(
    run_guarded: Run, guarded: Daemon
) -> None:
    """Kafka's tools take `--topic 'orders*'` literally: a rule about no topic that there can be."""
    with Admin(guarded.address) as admin:
        admin.create_acls([Acl("User:carol", "read", "topic", "orders*", pattern="literal")])
    assert run_guarded(*ADD, "--topic", "orders*").returncode == 0
    listed = run_guarded("acl", "list").stdout.decode().splitlines()
    names = {row.split()[0]: row.split("topic", 1)[1].strip() for row in listed if "orders" in row}
    assert names == {"User:carol": "orders* (literal)", "User:alice": "orders*"}
    for user in ("carol", "alice"):
        assert run_guarded("acl", "remove", "--principal", f"User:{user}").returncode == 0


def test_whether_to_remove_all_rules_is_asked(run_guarded: Run, guarded: Daemon) -> None:
    for name in ("a", "b"):
        assert run_guarded(*ADD, "--topic", name).returncode == 0
    for answer, code, left in ((b"n\n", ExitCode.INTERRUPTED, 2), (b"y\n", ExitCode.OK, 0)):
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer)
            done = subprocess.run(
                [*COMMAND, "acl", "remove", "--all", "-b", guarded.address],
                stdin=theirs,
                capture_output=True,
                timeout=TIMEOUT_S,
                env=environment(),
                check=False,
            )
        finally:
            os.close(ours)
            os.close(theirs)
        assert done.stderr.startswith(b"remove all 2 access rules?"), done.stderr
        assert (done.returncode, len(rules(run_guarded))) == (code, left)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (ADD, "on what?"),
        (("acl", "add", "--principal", "alice", "--operation", "read", "--topic", "t"),
         "write User:alice"),
        (("acl", "add", "--principal", "User:a", "--operation", "fly", "--topic", "t"), "fly"),
        (("acl", "remove"), "which?"),
    ],
)  # fmt: skip
def test_what_makes_no_rule_is_said(run_guarded: Run, words: tuple[str, ...], says: str) -> None:
    refused = run_guarded(*words)
    assert refused.returncode == ExitCode.USAGE
    assert says in refused.stderr.decode()


def test_without_an_authorizer_the_command_says_how_to_start_one(run: Run) -> None:
    refused = run("acl", "list")
    assert refused.returncode == ExitCode.REFUSED
    assert "--authorizer acl" in refused.stderr.decode()


def test_who_is_not_allowed_reads_what_to_do(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--authorizer", "acl") as daemon:
        seen = segbroker("topic", "create", "t", "-b", daemon.address)
    assert seen.returncode == ExitCode.REFUSED
    error, hint = seen.stderr.decode().splitlines()
    assert error == "Error: create topic 't': Not allowed on this topic"
    assert "segbroker acl add" in hint
    assert "access_denied" in hint


def test_who_may_create_and_not_describe_creates_all_the_same(tmp_path: Path) -> None:
    flags = ("--authorizer", "acl")
    with running(tmp_path / "data", *flags, "--super-users", "User:ANONYMOUS") as daemon:
        mine = ("acl", "add", "--principal", "User:ANONYMOUS", "--operation", "create")
        assert segbroker(*mine, "--topic", "mine", "-b", daemon.address).returncode == 0
    with running(tmp_path / "data", *flags) as daemon:
        made = segbroker("topic", "create", "mine", "-b", daemon.address)
    assert (made.returncode, made.stderr) == (0, b"created topic mine\n")


def test_who_may_describe_a_group_and_not_read_its_topics_sees_how_many_records_it_is_behind(
    tmp_path: Path,
) -> None:
    flags = ("--authorizer", "acl")
    with running(tmp_path / "data", *flags, "--super-users", "User:ANONYMOUS") as daemon:
        at = ("-b", daemon.address)
        for topic in ("closed", "open"):
            segbroker("produce", topic, "-p", "0", *at, stdin=b"a\nb\nc\n")
            assert segbroker("group", "seek", "g", topic, "1", *at).returncode == 0
        may = ("acl", "add", "--principal", "User:ANONYMOUS", "--group", "g", *at)
        segbroker(*may, "--operation", "describe", "--topic", "closed", "--topic", "open")
        segbroker(*may, "--operation", "read", "--topic", "open")
    with running(tmp_path / "data", *flags) as daemon:
        seen = segbroker("group", "describe", "g", "--json", "-b", daemon.address)
        text = segbroker("group", "list", "--long", "-b", daemon.address)
    assert (seen.returncode, text.returncode) == (0, 0), seen.stderr
    facts = json.loads(seen.stdout)
    rows = {row["topic"]: row for row in facts["partitions"] if row["partition"] == 0}
    assert (rows["closed"]["lag"], rows["closed"]["lag_seconds"]) == (2, None)
    assert rows["open"]["lag_seconds"] == facts["lag_seconds"] > 0
    assert facts["lag"] == 4


def test_who_may_not_write_is_told_who_can_allow_it(tmp_path: Path) -> None:
    flags = ("--authorizer", "acl", "--super-users", "User:admin")
    with running(tmp_path / "data", *flags) as daemon:
        words = ("produce", "closed", "-b", daemon.address)
        refused = segbroker(*words, stdin=b"a\nb\n")
    assert refused.returncode == ExitCode.UNDELIVERED
    said = refused.stderr.decode()
    assert said.startswith("2 of 2 records were not delivered:\n")
    assert said.count("Hint: somebody with ALTER on the cluster can allow it") == 1


def test_who_may_not_read_the_settings_of_a_topic_sees_the_rest_and_trims_what_he_may(
    tmp_path: Path,
) -> None:
    flags = ("--authorizer", "acl")
    with running(tmp_path / "data", *flags, "--super-users", "User:ANONYMOUS") as daemon:
        at = ("-b", daemon.address)
        segbroker("topic", "create", "flights", "--partitions", "1", *at)
        segbroker("produce", "flights", *at, stdin=b"a\nb\nc\n")
        may = ("acl", "add", "--principal", "User:ANONYMOUS", "--topic", "flights", *at)
        assert segbroker(*may, "--operation", "delete").returncode == 0
        segbroker("topic", "create", "trains", "--partitions", "1", *at)
        may = ("acl", "add", "--principal", "User:ANONYMOUS", "--topic", "trains", *at)
        assert segbroker(*may, "--operation", "describe").returncode == 0
        assert segbroker(*may, "--operation", "describe_configs").returncode == 0
        segbroker("produce", "trains", *at, stdin=b"a\n")
    with running(tmp_path / "data", *flags) as daemon:
        at = ("-b", daemon.address)
        refused = segbroker("topic", "trim", "trains", "--before", "end", "--yes", *at)
        trimmed = segbroker("topic", "trim", "flights", "--before", "1", "--yes", *at)
        listed = segbroker("topic", "list", "--long", *at)
        described = segbroker("topic", "describe", "flights", *at)
        facts = segbroker("topic", "describe", "flights", "--json", *at)
    assert (trimmed.returncode, trimmed.stderr) == (0, b"deleted 1 record of flights\n")
    assert (refused.returncode, refused.stdout) == (ExitCode.REFUSED, b""), "nothing is deleted"
    assert refused.stderr.startswith(b"deleted 0 records of trains, then it failed\nError: ")
    refusal = b"Error: config of topic 'flights': Not allowed on this topic"
    for seen in (listed, described, facts):
        assert seen.returncode == ExitCode.REFUSED
        assert seen.stderr.splitlines()[0] == refusal
    assert [line.split() for line in listed.stdout.splitlines()] == [
        b"topic partitions records durability".split(),
        b"flights 1 2 ?".split(),
        b"trains 1 1 fsync".split(),
    ]
    assert described.stdout.splitlines() == [
        b"topic flights: 1 partition, 2 records",
        b"",
        b"partition  start  end  records",
        b"        0      1    3        2",
    ]
    assert json.loads(facts.stdout)["config"] is None
    assert json.loads(facts.stdout)["partitions"][0]["end"] == 3
