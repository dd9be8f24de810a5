"""`consume --on-gap`: what is said of lost records, and to whom."""

import json
from collections.abc import Iterator
from subprocess import CompletedProcess

import pytest

from segbroker.client import Admin

from ..support.daemon import Daemon
from ..support.damage import TOPIC, with_a_lost_batch
from .conftest import segbroker


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with with_a_lost_batch(tmp_path_factory.mktemp("damaged") / "data") as daemon:
        yield daemon


BEFORE = b"".join(b"%d\n" % i for i in range(10))
BEHIND = b"".join(b"%d\n" % i for i in range(20, 30))


def test_by_default_a_gap_ends_the_reading_with_an_exit_code_of_its_own(damaged: Daemon) -> None:
    seen = segbroker("consume", TOPIC, "-e", "-b", damaged.address)
    assert seen.returncode == 10
    assert seen.stdout == BEFORE
    assert "offsets [10, 20) are lost: they were damaged on disk" in seen.stderr.decode()


def test_print_says_one_line_per_gap_and_goes_on(damaged: Daemon) -> None:
    seen = segbroker("consume", TOPIC, "-e", "--on-gap", "print", "-b", damaged.address)
    assert (seen.returncode, seen.stdout) == (0, BEFORE + BEHIND)
    (line,) = seen.stderr.decode().splitlines()
    assert line == "Gap: damaged-0: offsets [10, 20) are lost: they were damaged on disk"


def test_print_in_json_is_a_line_among_the_records(damaged: Daemon) -> None:
    seen = segbroker("consume", TOPIC, "-e", "-J", "--on-gap", "print", "-b", damaged.address)
    lines = [json.loads(line) for line in seen.stdout.splitlines()]
    assert lines[10] == {
        "gap": {
            "topic": "damaged",
            "partition": 0,
            "from_offset": 10,
            "to_offset": 20,
            "reason": "corruption",
        }
    }
    assert [line["offset"] for line in lines if "offset" in line] == [*range(10), *range(20, 30)]


def test_skip_says_nothing(damaged: Daemon) -> None:
    seen = segbroker("consume", TOPIC, "-e", "--on-gap", "skip", "-b", damaged.address)
    assert (seen.returncode, seen.stdout, seen.stderr) == (0, BEFORE + BEHIND, b"")


def share(daemon: Daemon, group: str, *words: str) -> CompletedProcess[bytes]:
    """Work on all of it in a share group that begins at the start."""
    with Admin(daemon.address) as admin:
        admin.alter_share_offsets(group, {(TOPIC, 0): 0})
    return segbroker("consume", "--share", group, TOPIC, "-n", "20", *words, "-b", daemon.address)


def test_a_member_of_a_share_group_hears_of_it_as_any_consumer(damaged: Daemon) -> None:
    seen = share(damaged, "raises")
    assert (seen.returncode, seen.stdout) == (10, BEFORE)
    assert "offsets [10, 20) are lost: they were damaged on disk" in seen.stderr.decode()
    seen = share(damaged, "prints", "--on-gap", "print")
    assert (seen.returncode, seen.stdout) == (0, BEFORE + BEHIND)
    assert seen.stderr.decode().splitlines() == [
        "Gap: damaged-0: offsets [10, 20) are lost: they were damaged on disk"
    ]
    with Admin(damaged.address) as admin:
        (stands,) = admin.share_offsets("prints").values()
    assert (stands.offset, stands.lag) == (30, 0)
