"""Play cases to both brokers."""

import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

import trio

from segbroker.protocol.api_keys import SERVED, ApiKey, ApiVersionRange

from ..support.wire_client import WireClient
from . import cases_shares
from .brokers import Pair
from .cases import CASES, Broken, Case, Ground
from .crowd import move_in
from .findings import Findings, Seen
from .logins import ADMIN, Address, Crowd
from .stage import Stage
from .stories import telling

CASE_TIMEOUT_S: Final = 120
# Long enough for what Ground.BRIEF keeps for a minute to be gone.
BREAK_S: Final = 75


class Failure(Exception):
    """A case could not be played to its end."""


@dataclass(frozen=True)
class Broker:
    """One of the two.

    Attributes:
        name: who made it.
        address: where it listens.
        crowd: its users, of a guarded one.
    """

    name: str
    address: Address
    crowd: Crowd | None

    @asynccontextmanager
    async def stage(self, name: str = "", version: int = 0) -> AsyncIterator[Stage]:
        """A stage for one story; that of the super user if there are users."""
        if self.crowd is not None:
            client = await self.crowd.dial(ADMIN)
        else:
            client = WireClient(await trio.open_tcp_stream(*self.address), "compare")
        stage = Stage(self.address, client, name, version, self.crowd)
        try:
            yield stage
        finally:
            await stage.client.stream.aclose()


async def ranges(address: Address, crowd: Crowd | None = None) -> dict[int, ApiVersionRange]:
    """What a broker offers."""
    async with Broker("", address, crowd).stage() as stage:
        answer = await stage.quietly(ApiKey.API_VERSIONS, 0)
        return {
            row.api_key: ApiVersionRange(row.min_version, row.max_version)
            for row in answer.api_keys
        }


async def play(case: Case, version: int, broker: Broker) -> Seen:
    """What one broker answered."""
    async with broker.stage(named(case, version), version) as stage:
        with told(stage), trio.fail_after(CASE_TIMEOUT_S):
            await case.run(stage)
        return stage.seen


def named(case: Case | Broken, version: int) -> str:
    """What the topics and groups of a story are called."""
    return f"c{case.key.value}-v{version}-{case.name.replace('_', '-')}"


@contextmanager
def told(stage: Stage) -> Iterator[None]:
    """Whatever is wrong is a Failure that says how far the story had come."""
    try:
        yield
    except Exception as exc:
        where = traceback.format_exception_only(exc)[-1].strip()
        last = next(reversed(stage.seen), "the first request")
        raise Failure(f"ends after {last!r}: {where[:300]}") from exc


async def warm(broker: Broker) -> None:
    """Kafka makes its inner topics at first use; a group and a transaction wait for that."""
    async with broker.stage("warm") as stage:
        with trio.fail_after(CASE_TIMEOUT_S):
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


def versions_of(case: Case, offered: dict[int, ApiVersionRange]) -> Sequence[int]:
    """In which versions a case is played; none if not both serve its api."""
    if case.key not in SERVED or case.key not in offered:
        return ()
    low = max(SERVED[case.key].min, offered[case.key].min, case.first)
    high = min(SERVED[case.key].max, offered[case.key].max)
    return sorted({low, high}) if case.ends else range(low, high + 1)


async def compare(pair: Pair, cases: Sequence[Case], findings: Findings) -> None:
    """Play cases of one ground."""
    guarded = cases[0].ground is Ground.GUARDED
    brokers = [
        Broker(name, address, Crowd(address) if guarded else None)
        for name, address in (("Kafka", pair.theirs), ("segbroker", pair.ours))
    ]
    for broker in brokers:
        if guarded:
            async with broker.stage() as stage:
                await move_in(stage, passwords=broker.name == "segbroker")
        await warm(broker)
        async with broker.stage("warm") as stage:
            await cases_shares.warmed(stage)
    offered = await ranges(pair.theirs, brokers[0].crowd)
    if not guarded:
        print_coverage(offered)
    for case in cases:
        for version in versions_of(case, offered):
            seen: list[Seen] = []
            for broker in brokers:
                try:
                    seen.append(await play(case, version, broker))
                except Failure as exc:
                    findings.failures.append(f"{case.name} v{version} on {broker.name} {exc}")
            if len(seen) == 2:
                findings.compare(case.key, case.name, version, *seen)
    for broker in brokers:
        if broker.crowd is not None:
            await broker.crowd.aclose()


@dataclass
class Half:
    """A story of which one half is told."""

    stage: Stage
    steps: AsyncGenerator[None, None]
    failure: Failure | None = None

    async def go_on(self) -> None:
        """Tell the next half."""
        if self.failure is not None:
            return
        try:
            with told(self.stage), trio.fail_after(CASE_TIMEOUT_S):
                await anext(self.steps, None)
        except Failure as exc:
            self.failure = exc
        finally:
            await self.stage.client.stream.aclose()


async def compare_over_a_break(pair: Pair, cases: Sequence[Broken], findings: Findings) -> None:
    """Play the first halves, break, play the second halves."""
    brokers = [Broker("Kafka", pair.theirs, None), Broker("segbroker", pair.ours, None)]
    for broker in brokers:
        await warm(broker)
    offered = await ranges(pair.theirs)
    stories: list[tuple[Broken, int, list[Half]]] = []
    for case in cases:
        version = min(SERVED[case.key].max, offered[case.key].max)
        halves = []
        for broker in brokers:
            client = WireClient(await trio.open_tcp_stream(*broker.address), "compare")
            stage = Stage(broker.address, client, named(case, version), version)
            halves.append(Half(stage, case.halves(stage)))
            await halves[-1].go_on()
        stories.append((case, version, halves))
    if cases[0].ground is Ground.RESTARTED:
        await trio.to_thread.run_sync(pair.restart)
        for broker in brokers:
            await warm(broker)
    else:
        await trio.sleep(BREAK_S)
    for case, version, halves in stories:
        for broker, half in zip(brokers, halves, strict=True):
            stream = await trio.open_tcp_stream(*broker.address)
            half.stage.client = WireClient(stream, "compare")
            await half.go_on()
            if half.failure is not None:
                findings.failures.append(f"{case.name} on {broker.name} {half.failure}")
        if not any(half.failure for half in halves):
            findings.compare(case.key, case.name, version, *(half.stage.seen for half in halves))


async def tell_stories(pair: Pair, seeds: Sequence[int], length: int) -> int:
    """Tell stories drawn at random.  Returns the exit code."""
    for address in (pair.theirs, pair.ours):
        await warm(Broker("", address, None))
    return await telling.tell(telling.Two(pair.theirs, pair.ours), seeds, length)


def print_coverage(offered: dict[int, ApiVersionRange]) -> None:
    """Which apis only one of them serves, or no case asks for."""
    have = {case.key for case in CASES}
    for key, span in SERVED.items():
        if key not in offered:
            print(f"{key.name}: not served by Kafka's broker listener")
        elif key not in have:
            print(f"{key.name} {span.min}-{span.max}: NO CASE")
