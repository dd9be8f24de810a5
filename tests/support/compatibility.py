"""The page docs/compatibility.md, from what a run of the matrix did.

    make matrix        runs it, and writes the page when everything ran

Rows are what users do, columns the releases of clients.  A step of a scenario or a test belongs to
the row that FEATURES names it under; what is in no row (there are many more steps) is still run and
still fails the run.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .java import NEWEST

FEATURES: Final[dict[str, tuple[str, ...]]] = {
    "produce: none, gzip, snappy, lz4, zstd": (
        "every_codec_comes_back_as_sent",
        "test_what_kcat_produces_kcat_consumes[false",
    ),
    "produce: idempotent": (
        "every_codec_comes_back_from_an_idempotent_producer",
        "many_batches_of_one_idempotent_producer_keep_their_order",
        "test_what_kcat_produces_kcat_consumes[true",
    ),
    "produce: acks 0, 1": (
        "every_kind_of_acks_delivers",
        "a_leaders_word_is_enough_with_acks_1",
        "nothing_is_answered_with_acks_0_and_all_arrives",
        "test_kcat_acks_deliver",
    ),
    "produce: in transactions": ("transactions_are_seen_whole_or_not_at_all",),
    "offsets in a transaction": ("offsets_go_with_their_transaction",),
    "consume: assigned, any offset": (
        "reads_what_our_client_wrote",
        "seeks_to_an_offset_the_start_and_the_end",
        "an_offset_out_of_range",
        "test_kcat_reads_from_offsets_from_the_end_and_by_time",
    ),
    "consume: by time": (
        "an_offset_is_found_by_time_to_the_exact_record",
        "test_kcat_reads_from_offsets_from_the_end_and_by_time",
    ),
    "group: commit and resume": (
        "a_group_reads_commits_and_resumes",
        "test_kcat_in_a_group_goes_on_where_it_stopped",
    ),
    "group: two members, one leaves": (
        "two_members_share_and_one_leaves",
        "test_kcat_takes_over_from_a_member_that_is[leaves",
    ),
    "group: a member is killed": (
        "a_killed_member_is_replaced",
        "test_kcat_takes_over_from_a_member_that_is[killed",
    ),
    "group: static members": (
        "a_static_member_comes_back_to_its_place",
        "test_kcat_comes_back_to_its_place_as_a_static_member",
    ),
    "share group: accepted, released, rejected": (
        "records_of_a_share_group_are_accepted_released_and_rejected",
        "test_accepted_released_and_rejected",
    ),
    "admin: topics and partitions": ("topics_are_listed", "test_kcat_lists_the_broker"),
    "admin: settings": (
        "configs_are_described_and_altered",
        "topics_are_listed_grown_described_altered",
    ),
    "TLS and SCRAM": (
        "tls_and_scram_let_in_who_knows_the_password",
        "test_kcat_together_secured",
    ),
}

# Which client a module of tests is about, where its test does not say.
_MODULES: Final = {
    "test_aiokafka.py": "aiokafka",
    "test_kafka_python.py": "kafka-python",
    "test_confluent_kafka_releases.py": "confluent-kafka",
    "test_java_client.py": "Java kafka-clients",
}
# Its consumers are those of one release.
_SHARES: Final = "test_share_groups.py"
_COLUMNS: Final = (
    "confluent-kafka",
    "kafka-python",
    "aiokafka",
    "Java kafka-clients",
    "kcat",
    "franz-go",
    "Sarama",
    "KafkaJS",
    "platformatic-kafka",
)


@dataclass(frozen=True, order=True)
class Column:
    """One release of one client."""

    client: str
    release: str


def place(nodeid: str, kcat: str) -> tuple[Column, str] | None:
    """The column and the step of a test, None for one that is about no foreign client.

    Args:
        nodeid: as pytest names it.
        kcat: the release of kcat on this machine.
    """
    module, _, test = nodeid.rpartition("/")[2].partition("::")
    if "kcat" in test:
        return Column("kcat", kcat), test
    _, _, words = test.partition("[")
    if module == _SHARES:
        return Column("Java kafka-clients", NEWEST), test
    found = re.search(r"(?:^|-)(\d+\.\d+\.\d+)(?:-|$)", words.rstrip("]"))
    if found is None or "our_client" in test:
        return None
    step = words.rstrip("]").replace(found[1], "").strip("-")
    client = _MODULES.get(module)
    if test.startswith("test_java_together"):
        client = "Java kafka-clients"
    elif test.startswith(("test_together", "test_language")):
        client, step = words[: found.start()], words.rstrip("]")[found.end() :]
    return None if client is None else (Column(client, found[1]), step)


def table(outcomes: Mapping[str, str], kcat: str) -> list[str]:
    """The lines of the table. `outcomes`: nodeid -> passed, failed or skipped."""
    cells: dict[tuple[str, Column], list[str]] = {}
    columns: set[Column] = set()
    for nodeid, outcome in outcomes.items():
        placed = place(nodeid, kcat)
        if placed is None:
            continue
        column, step = placed
        columns.add(column)
        for feature, starts in FEATURES.items():
            if step.startswith(starts):
                cells.setdefault((feature, column), []).append(outcome)
    ordered = sorted(
        columns,
        key=lambda one: (_COLUMNS.index(one.client), [-int(n) for n in one.release.split(".")]),
    )
    lines = [
        "| | " + " | ".join(f"{one.client} {one.release}" for one in ordered) + " |",
        "|---|" + "---|" * len(ordered),
    ]
    for feature in FEATURES:
        row = [_cell(cells.get((feature, column), [])) for column in ordered]
        lines.append(f"| {feature} | " + " | ".join(row) + " |")
    return lines


def _cell(outcomes: Iterable[str]) -> str:
    ran = [one for one in outcomes if one != "skipped"]
    if not ran:
        return "–"
    good = ran.count("passed")
    return "yes" if good == len(ran) else f"**{good} of {len(ran)}**"


def page(outcomes: Mapping[str, str], *, kcat: str, commit: str, date: str, command: str) -> str:
    """The whole page."""
    counts = {word: list(outcomes.values()).count(word) for word in ("passed", "failed", "skipped")}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return "\n".join(
        [
            "# Which clients work",
            "",
            "Unmodified releases of other people's Kafka clients, run against a segbroker daemon.",
            "",
            "- *yes*: every step of that row passed.",
            "- –: not run, mostly because the client lacks the feature: kcat has no transactions,",
            "  kafka-python 2.0 no idempotence, KafkaJS no static members. franz-go's share groups",
            "  are run by its own tests.",
            "- Logins by a token (OAUTHBEARER) are not in the table: the newest confluent-kafka, "
            "kafka-python",
            "  and aiokafka, and Java's kafka-clients, do them in "
            "`tests/system/test_oauth_logins.py`, and",
            "  with tokens of Keycloak in `tests/system/test_keycloak.py`.",
            "- Left out of the first row: snappy, lz4 and zstd of KafkaJS, which are plug-ins, and",
            "  zstd of @platformatic/kafka, which needs Node 22.",
            "",
            "`make test` runs the newest and the oldest release of the Python clients, the newest",
            "kafka-clients, and kcat. The other columns are run by `make matrix`.",
            "",
            *table(outcomes, kcat),
            "",
            f"Generated by `{command}` on {date}, commit {commit}: {said}.",
            "The steps are in `tests/support/clients/`. What the clients' own test suites say is",
            "in [peers.md](peers.md).",
            "",
        ]
    )
