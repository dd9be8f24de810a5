"""`python -m tests.compare [API ...]`: play every case to both brokers and say what differs."""

import argparse
import collections
import sys
import tempfile
import traceback
from pathlib import Path

import trio

from segbroker.protocol.api_keys import SERVED, ApiKey, ApiVersionRange

from . import (
    cases_admin,
    cases_corners,
    cases_fetches,
    cases_groups,
    cases_kinds,
    cases_produce,
    cases_read,
    cases_security,
    cases_sequences,
    cases_settings,
    cases_shares,
    cases_streams,
    cases_time,
    cases_transactions,
)
from .answers import Fields, differences
from .brokers import Missing, both
from .cases import CASES, Case
from .rules import ACCEPTED, acceptance, normalised
from .stage import Stage, connect

MODULES = (
    cases_admin,
    cases_corners,
    cases_fetches,
    cases_groups,
    cases_kinds,
    cases_produce,
    cases_read,
    cases_security,
    cases_sequences,
    cases_settings,
    cases_shares,
    cases_streams,
    cases_time,
    cases_transactions,
)
CASE_TIMEOUT_S = 120

Address = tuple[str, int]
Seen = dict[str, Fields]


class Failure(Exception):
    """A case could not be played to its end."""


async def ranges(address: Address) -> dict[int, ApiVersionRange]:
    """What a broker offers."""
    async with connect(address, "compare") as client:
        answer = await Stage(address, client, "", 0).quietly(ApiKey.API_VERSIONS, 0)
        return {
            row.api_key: ApiVersionRange(row.min_version, row.max_version)
            for row in answer.api_keys
        }


async def play(case: Case, version: int, address: Address) -> Seen:
    """What one broker answered."""
    name = f"c{case.key.value}-v{version}-{case.name.replace('_', '-')}"
    async with connect(address, "compare") as client:
        stage = Stage(address, client, name, version)
        try:
            with trio.fail_after(CASE_TIMEOUT_S):
                await case.run(stage)
        except Exception as exc:
            where = traceback.format_exception_only(exc)[-1].strip()
            last = next(reversed(stage.seen), "the first request")
            raise Failure(f"ends after {last!r}: {where[:300]}") from exc
        finally:
            await stage.client.stream.aclose()
        return stage.seen


async def warm(address: Address) -> None:
    """Kafka makes its inner topics at first use; a group and a transaction wait for that."""
    async with connect(address, "compare") as client:
        stage = Stage(address, client, "warm", 0)
        with trio.fail_after(60):
            for kind in (0, 1):
                while True:
                    answer = await stage.quietly(
                        ApiKey.FIND_COORDINATOR, 1, key="warm", key_type=kind
                    )
                    if answer.error_code not in (14, 15):
                        break
                    await trio.sleep(0.1)
            while True:
                answer = await stage.quietly(
                    ApiKey.INIT_PRODUCER_ID,
                    0,
                    transactional_id="warm",
                    transaction_timeout_ms=60_000,
                )
                if answer.error_code not in (14, 15, 16):
                    break
                await trio.sleep(0.1)
        await cases_shares.warmed(stage)


Row = tuple[str, str, str, str, str]


async def compare(theirs: Address, ours: Address, keys: set[ApiKey]) -> int:
    """Play everything; print what differs. Returns the exit code."""
    await warm(theirs)
    offered = await ranges(theirs)
    found: dict[Row, list[int]] = collections.defaultdict(list)
    used: collections.Counter[int] = collections.Counter()
    failures: list[str] = []
    answers = fields_count = 0
    print_coverage(offered)
    for case in CASES:
        if keys and case.key not in keys:
            continue
        if case.key not in SERVED or case.key not in offered:
            continue
        low = max(SERVED[case.key].min, offered[case.key].min, case.first)
        high = min(SERVED[case.key].max, offered[case.key].max)
        for version in range(low, high + 1):
            seen: list[Seen] = []
            for who, address in (("Kafka", theirs), ("segbroker", ours)):
                try:
                    seen.append(await play(case, version, address))
                except Failure as exc:
                    failures.append(f"{case.name} v{version} on {who} {exc}")
            if len(seen) < 2:
                continue
            answers += len(seen[0])
            for label in dict.fromkeys([*seen[0], *seen[1]]):
                their, our = (normalised(case.key, one.get(label, {})) for one in seen)
                fields_count += len(their)
                for difference in differences(their, our):
                    rule = acceptance(case.key, label, difference)
                    if rule is not None:
                        used[ACCEPTED.index(rule)] += 1
                    else:
                        values = short(difference.theirs), short(difference.ours)
                        found[case.name, label, difference.path, *values].append(version)
    for (name, label, path, their_value, our_value), versions in found.items():
        span = f"v{versions[0]}" if len(versions) == 1 else f"v{versions[0]}-{versions[-1]}"
        print(f"{name} {span} / {label}: {path}: Kafka {their_value}, segbroker {our_value}")
    for line in failures:
        print(f"NOT PLAYED {line}")
    if not keys:
        for number, rule in enumerate(ACCEPTED):
            if not used[number]:
                print(f"accepted rule is not needed: {rule.key.name} {rule.path} {rule.label}")
    print(
        f"{answers} answers, {fields_count} fields compared; {len(found)} differences, "
        f"{used.total()} accepted by {len(used)} rules, {len(failures)} not played"
    )
    return 1 if found or failures else 0


def print_coverage(offered: dict[int, ApiVersionRange]) -> None:
    """Which apis only one of them serves, or no case asks for."""
    have = {case.key for case in CASES}
    for key, span in SERVED.items():
        if key not in offered:
            print(f"{key.name}: not served by Kafka's broker listener")
        elif key not in have:
            print(f"{key.name} {span.min}-{span.max}: NO CASE")


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:77]}..."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compare", description=__doc__)
    parser.add_argument("api", nargs="*", help="names of apis, as FETCH; all by default")
    parser.add_argument("--with", dest="given", help="HOST:PORT of an Apache Kafka that runs")
    options = parser.parse_args()
    keys = {ApiKey[name.upper()] for name in options.api}
    with tempfile.TemporaryDirectory(prefix="segbroker-compare-") as folder:
        try:
            with both(Path(folder), options.given) as (theirs, ours):
                return trio.run(compare, theirs, ours, keys)
        except Missing as exc:
            print(f"cannot be compared here: {exc}")
            return 1


if __name__ == "__main__":
    sys.exit(main())
