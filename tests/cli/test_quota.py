"""`segbroker quota` against a real daemon."""

import json

import pytest

from segbroker.cli.exit_codes import ExitCode

from .conftest import Run


def test_quotas_are_set_listed_and_removed(run: Run) -> None:
    done = run("quota", "set", "--user", "alice", "--produce", "10MiB", "--requests", "2.5")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    assert (
        run("quota", "set", "--user", "alice", "--client-id", "*", "--consume", "1").returncode == 0
    )
    assert run("quota", "set", "--ip", "10.0.0.7", "--connections", "5").returncode == 0
    rows = json.loads(run("quota", "list", "--user", "alice", "--json").stdout)
    assert rows == [
        {
            "entity": {"user": "alice"},
            "values": {"producer_byte_rate": 10485760.0, "request_rate": 2.5},
        },
        {"entity": {"client-id": None, "user": "alice"}, "values": {"consumer_byte_rate": 1.0}},
    ]  # fmt: skip
    lines = run("quota", "list").stdout.decode().splitlines()
    assert "ip 10.0.0.7" in lines[2]
    assert lines[2].endswith("connection_creation_rate           5")
    assert "10,485,760" in "".join(lines)

    for words in (
        ["--user", "alice"],
        ["--user", "alice", "--client-id", "*"],
        ["--ip", "10.0.0.7"],
    ):
        assert run("quota", "remove", *words).returncode == 0
    assert json.loads(run("quota", "list", "--json").stdout) == []
    assert run("quota", "remove", "--user", "alice").returncode == ExitCode.NOT_FOUND


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "--produce", "1"), "for whom?"),
        (("set", "--user", "a"), "how much?"),
        (("set", "--user", "a", "--produce", "much"), "not an amount"),
        (("remove",), "for whom?"),
    ],
)
def test_what_is_no_quota_is_said(run: Run, words: tuple[str, ...], says: str) -> None:
    refused = run("quota", *words)
    assert refused.returncode == ExitCode.USAGE
    assert says in refused.stderr.decode()


def test_a_quota_that_its_kind_has_not_is_refused_by_the_broker(run: Run) -> None:
    refused = run("quota", "set", "--ip", "10.0.0.7", "--produce", "1")
    assert refused.returncode == ExitCode.REFUSED
    said = "'producer_byte_rate' is no quota of ip; there are: connection_creation_rate"
    assert said in refused.stderr.decode()
