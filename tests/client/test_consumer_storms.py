"""Members of KIP-848's protocol that come and go while requests are refused, cut and lost.

In simulated time, a seed is a run; one by one they are in test_consumer_membership.py.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from segbroker.client import reading
from segbroker.client.errors import BrokerError, SegbrokerError
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import ConsumerGroupHeartbeatRequest
from segbroker.protocol.messages_groups import (
    FindCoordinatorRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

from .simulated_consumer_groups import ConsumerGroupWorld
from .simulated_groups import SimulatedMember

PARTITIONS = 5
RECORDS = 40
STEPS = 25
REQUESTS = [
    request.message_key
    for request in (
        ConsumerGroupHeartbeatRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        FindCoordinatorRequest,
    )
]
PASSING = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
]
OF_BEATS = [
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.UNSUPPORTED_ASSIGNOR,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_ID_NOT_FOUND,
]


class Storm:
    """What may happen."""

    def __init__(
        self, seed: int, patch: pytest.MonkeyPatch, *expected: type[SegbrokerError]
    ) -> None:
        """expected: what members may be told."""
        self._expected = expected
        self.world = ConsumerGroupWorld(seed, partitions=PARTITIONS, records=RECORDS)
        patch.setattr(reading, "now_ms", lambda: self.world.now_ms)
        self.random = self.world.random
        self.world.job_ms = lambda: self.random.choice([0, 1, 30, 200, 2_000])

    @property
    def alive(self) -> list[SimulatedMember]:
        return [member for member in self.world.members if member.is_alive]

    def blows(self, *does: Callable[[], object]) -> None:
        """Any of these, again and again; then it is calm."""
        self.start()
        for _ in range(STEPS):
            self.world.passes(self.random.choice([0, 3, 10, 300, 2_000, 7_000]))
            self.random.choice(does)()
        world = self.world
        for told in (world.to_cut, world.to_lose):
            told.clear()
        for refusals in (
            world.beat_refusals,
            world.commit_refusals,
            world.find_refusals,
            world.refusals,
        ):
            refusals.clear()
        world.unanswered = 0

    def start(self) -> None:
        if len(self.alive) < 4:
            self.world.start(request_timeout_ms=5_000).expected = self._expected

    def leave(self) -> None:
        if len(self.alive) > 1:
            member = self.random.choice(self.alive)
            if member.in_hand is None:
                member.leave()

    def kill(self) -> None:
        if len(self.alive) > 1:
            self.world.kill(self.random.choice(self.alive))

    def cut(self) -> None:
        self.world.cut(self.random.choice(self.alive))

    def cut_before(self) -> None:
        self.world.to_cut[self.random.choice(REQUESTS)] += 1

    def cut_behind(self) -> None:
        self.world.to_lose[self.random.choice(REQUESTS)] += self.random.choice([1, 2])

    def move(self) -> None:
        """Its coordinator is another one, which is not ready yet."""
        self.world.find_refusals += self.random.choices(PASSING[1:], k=2)
        self.cut()

    def pass_by(self) -> None:
        """What passes is answered."""
        late = ErrorCode.STALE_MEMBER_EPOCH
        match self.random.randrange(3):
            case 0:
                self.world.beat_refusals.append(self.random.choice(PASSING))
            case 1:
                refusal = self.random.choice([late, *PASSING])
                self.world.commit_refusals += [refusal] * self.random.choice([1, 3])
            case _:
                refusal = self.random.choice([late, ErrorCode.UNSTABLE_OFFSET_COMMIT, *PASSING])
                self.world.refusals.append(refusal)

    def refuse(self) -> None:
        self.world.beat_refusals.append(self.random.choice(OF_BEATS))

    def not_answer(self) -> None:
        self.world.unanswered += 1

    def expel(self) -> None:
        if self.world.group.members:
            self.world.expel(self.random.choice(list(self.world.group.members)))
            self.world.unsure_until_ms = self.world.now_ms + 10_000


@pytest.mark.parametrize("seed", range(8))
def test_what_passes_costs_no_partition_and_nothing_is_worked_at_twice(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storm = Storm(seed, monkeypatch)
    world = storm.world
    storm.blows(
        storm.start,
        storm.leave,
        storm.cut,
        storm.cut_before,
        storm.cut_behind,
        storm.move,
        storm.pass_by,
        storm.pass_by,
    )
    world.run(world.is_settled)
    assert set(Counter(world.processed).values()) == {1}
    assert all(what != "lost" for member in world.members for what, _ in member.told)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_a_coordinator_answers_no_record_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storm = Storm(seed, monkeypatch, BrokerError)
    world = storm.world
    storm.blows(
        storm.start,
        storm.start,
        storm.leave,
        storm.kill,
        storm.cut_before,
        storm.cut_behind,
        storm.move,
        storm.pass_by,
        storm.refuse,
        storm.refuse,
        storm.not_answer,
        storm.expel,
    )
    world.run(world.is_settled)
