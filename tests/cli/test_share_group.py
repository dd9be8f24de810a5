"""`segbroker group` of share groups, against a real daemon."""

import json
from typing import Any

from segbroker.cli.exit_codes import ExitCode

from ..support import share_members
from ..support.daemon import Daemon
from .conftest import Run


def described(run: Run, group: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(run("group", "describe", group, "--json").stdout)
    return facts


def test_a_share_group_is_made_listed_described_moved_and_deleted(
    run: Run, topic: str, daemon: Daemon
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=b"".join(b"%d\n" % n for n in range(20)))
    made = run("group", "seek", topic, topic, "start", "--share")
    assert (made.returncode, made.stdout.decode().split()) == (0, ["partition", "offset", "0", "0"])

    lines = run("group", "list", "--long").stdout.decode().splitlines()
    (row,) = [line.split() for line in lines if line.startswith(f"{topic} ")]
    assert row[:5] == [topic, "Empty", "share", "0", "20"]
    text = run("group", "describe", topic).stdout.decode()
    assert text.startswith(f"share group {topic}: Empty, 0 members, 20 records behind, ")
    facts = described(run, topic)
    assert [facts[key] for key in ("state", "type", "protocol_type", "lag")] == [
        *("Empty", "share", "share"),
        20,
    ]
    (one,) = facts["partitions"]
    assert [one[key] for key in ("offset", "end", "lag", "member")] == [0, 20, 20, None]
    assert one["lag_seconds"] > 0
    (listed,) = [
        one for one in json.loads(run("group", "list", "--json").stdout) if one["group"] == topic
    ]
    assert (listed["type"], listed["protocol_type"]) == ("share", "share")

    for position, expected in (("end", 20), ("7", 7), ("+5", 12), ("+50", 20), ("-3", 17)):
        done = run("group", "seek", topic, topic, position)
        assert done.returncode == 0, done.stderr
        (one,) = described(run, topic)["partitions"]
        assert (one["offset"], one["lag"]) == (expected, 20 - expected)
    run("group", "seek", topic, topic, "start", "--dry-run")
    assert described(run, topic)["lag"] == 3
    assert run("group", "delete", topic, "--yes").returncode == 0
    assert run("group", "describe", topic).returncode == ExitCode.NOT_FOUND


def test_members_of_a_share_group_are_described_and_it_is_not_moved(
    run: Run, topic: str, daemon: Daemon
) -> None:
    run("topic", "create", topic, "--partitions", "1")
    run("group", "seek", topic, topic, "start", "--share")
    members = share_members.join(daemon.address, topic, topic, count=2)
    facts = described(run, topic)
    assert facts["state"] == "Stable"
    assert sorted(one["member"] for one in facts["members"]) == sorted(members)
    (one,) = facts["partitions"]
    assert (one["member"], sorted(one["members"])) == (None, sorted(members))
    assert run("group", "describe", topic).stdout.decode().rstrip().endswith("2 members")
    for words in (["seek", topic, topic, "end"], ["delete", topic, "--yes"]):
        refused = run("group", *words)
        assert (refused.returncode, refused.stdout) == (ExitCode.REFUSED, b"")
        assert b"has members" in refused.stderr
        assert b"Hint: stop its consumers first" in refused.stderr
    dry = run("group", "seek", topic, topic, "end", "--dry-run")
    assert (dry.returncode, dry.stdout) == (ExitCode.REFUSED, b"")
    share_members.leave(daemon.address, topic, members)
    assert run("group", "seek", topic, topic, "end").returncode == 0


def test_another_group_is_not_taken_for_a_share_group(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    assert run("group", "seek", topic, topic, "start").returncode == 0
    refused = run("group", "seek", topic, topic, "end", "--share")
    assert (refused.returncode, refused.stdout) == (ExitCode.REFUSED, b"")
    assert b"is not a share group" in refused.stderr
    assert described(run, topic)["type"] == "classic"


def test_a_share_group_that_stands_nowhere_is_not_moved_from_there(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    run("topic", "create", f"{topic}-other")
    run("group", "seek", topic, f"{topic}-other", "start", "--share")
    for group in (topic, f"{topic}-none"):
        moved = run("group", "seek", group, topic, "-1", "--share")
        assert (moved.returncode, moved.stdout) == (ExitCode.NOT_FOUND, b"")
        assert b"has no offsets in topic" in moved.stderr


def test_settings_of_a_group_are_shown_and_changed(run: Run, topic: str) -> None:
    def held(key: str) -> list[str]:
        lines = run("group", "settings", topic).stdout.decode().splitlines()
        (row,) = [line.split() for line in lines if line.startswith(f"{key} ")]
        return row[1:]

    assert held("share.auto.offset.reset") == ["latest", "default"]
    done = run("group", "alter", topic, "-c", "share.auto.offset.reset=earliest")
    assert (done.returncode, done.stdout) == (0, b"")
    assert held("share.auto.offset.reset") == ["earliest", "group"]
    rows = json.loads(run("group", "settings", topic, "--json").stdout)
    assert rows["share.delivery.count.limit"] == {"value": "5", "source": "default"}

    assert run("group", "alter", topic, "--unset", "share.auto.offset.reset").returncode == 0
    assert held("share.auto.offset.reset") == ["latest", "default"]
    for words in (["-c", "share.auto.offset.reset=none"], ["-c", "no.such=1"], ["--unset", "no"]):
        refused = run("group", "alter", topic, *words)
        assert refused.returncode == ExitCode.CONFIG, refused.stderr
        hint = f"Hint: segbroker group settings {topic} lists them" in refused.stderr.decode()
        assert hint == (words[1] in ("no.such=1", "no")), "where the name is wrong"
    assert run("group", "alter", topic).returncode == ExitCode.USAGE
