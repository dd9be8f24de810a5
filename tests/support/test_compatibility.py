"""The table of clients says what ran and hides no failure, and what always runs is as it says."""

import re
import subprocess
import sys

from .compatibility import Column, place, table
from .java import NEWEST
from .scenario import ROOT

SYSTEM = "tests/system/"
SHARE = "two_members_share_and_one_leaves"
RAN = {
    f"{SYSTEM}{nodeid}": outcome
    for nodeid, outcome in {
        f"test_together.py::test_together[kafka-python-3.0.12-{SHARE}]": "passed",
        "test_together.py::test_java_together[4.3.0-two_members_share_and_one_leaves]": "failed",
        "test_java_client.py::test_java_client[every_codec_comes_back_as_sent-4.3.0]": "passed",
        "test_kafka_python.py::test_kafka_python[3.0.12-configs_are_described]": "passed",
        "test_kcat.py::test_what_kcat_produces_kcat_consumes[false-none]": "passed",
        "test_kcat.py::test_what_kcat_produces_kcat_consumes[false-gzip]": "failed",
        "test_kcat.py::test_kcat_lists_the_broker_and_its_topics": "skipped",
        "test_install.py::test_it_installs": "passed",
        f"test_other_languages.py::test_language[franz-go-1.22.2-{SHARE}]": "passed",
    }.items()
}


def cells(lines: list[str]) -> dict[str, list[str]]:
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {line[0]: line[1:] for line in split}


def rows() -> dict[str, list[str]]:
    return cells(table(RAN, "1.7.1"))


def test_a_column_is_a_release_of_a_client() -> None:
    clients = ["kafka-python 3.0.12", "Java kafka-clients 4.3.0", "kcat 1.7.1", "franz-go 1.22.2"]
    assert rows()[""] == clients


def test_a_cell_is_yes_only_when_every_step_of_it_passed() -> None:
    assert rows()["group: two members, one leaves"] == ["yes", "**0 of 1**", "–", "yes"]
    assert rows()["produce: none, gzip, snappy, lz4, zstd"] == ["–", "yes", "**1 of 2**", "–"]


def test_what_was_skipped_is_not_said_to_work() -> None:
    assert rows()["admin: topics and partitions"] == ["–", "–", "–", "–"]


def test_tests_of_our_own_are_no_column() -> None:
    assert place("tests/system/test_install.py::test_it_installs", "1") is None
    module = "tests/system/test_kafka_python.py"
    assert place(f"{module}::test_our_client_reads_what_it_wrote[3.0.12-gzip]", "1") is None
    newest = f"{module}::test_kafka_python[3.0.12-configs]"
    assert place(newest, "1") == (Column("kafka-python", "3.0.12"), "configs")


def test_share_consumers_are_those_of_the_newest_java() -> None:
    shared = "tests/system/test_share_groups.py::test_accepted_released_and_rejected"
    expected = Column("Java kafka-clients", NEWEST), "test_accepted_released_and_rejected"
    assert place(shared, "1") == expected


def without_releases(table: dict[str, list[str]]) -> dict[str, list[str]]:
    """With clients for releases: the newest on this machine may be newer than the page."""
    return table | {"": [re.sub(r" [\d.]+$", "", name) for name in table[""]]}


def test_every_run_does_the_columns_that_the_page_says() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text().splitlines()
    said = cells([line for line in page if line.startswith("|")])
    names = [name.rpartition(" ")[0] for name in said[""]]
    always = {names.index("Java kafka-clients"), names.index("kcat")}
    for client in ("confluent-kafka", "kafka-python", "aiokafka"):
        first, count = names.index(client), names.count(client)
        assert count > 1, "an old release, too"
        always |= {first, first + count - 1}
    expected = {row: [line[n] for n in sorted(always)] for row, line in said.items() if line[1:]}

    listing = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not matrix", SYSTEM]
    found = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ran = {line: "passed" for line in found.splitlines() if "::" in line}
    assert without_releases(cells(table(ran, "1.7.1"))) == without_releases(expected)
