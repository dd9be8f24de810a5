"""The room of half-received requests: who waits for it goes on when there is some, and wakes nobody
in vain."""

from random import Random

import pytest
import trio
import trio.testing

from segbroker.broker.loop.half_requests import HalfRequests
from segbroker.protocol.messages_core import ProduceResponse

from ..support.waiting import becomes
from ..support.wire_client import batch, connect, produce_request
from .conftest import serving

HALF_OF_ONE = (8 << 20).to_bytes(4, "big") + bytes(1_200_000)


async def test_who_waits_for_the_room_of_its_address_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each large request of another address woke them all: two thousand took 13 ms."""
    count, looks = 20, 0
    is_full = HalfRequests.is_full

    def counted(self: HalfRequests, host: str, holder: object) -> bool:
        nonlocal looks
        looks += 1
        return is_full(self, host, holder)

    monkeypatch.setattr(HalfRequests, "is_full", counted)
    async with (
        serving(request_bytes_per_ip_max=1 << 20) as broker,
        connect(broker.address) as other,
        trio.open_nursery() as nursery,
    ):
        await other.create("t")
        assert broker._admission is not None
        half = broker._admission.half

        async def wait(data: bytes) -> None:
            async with connect(broker.address, source="127.0.0.2") as client:
                await client.send_bytes(data)
                await trio.sleep_forever()

        nursery.start_soon(wait, HALF_OF_ONE)
        await becomes(lambda: broker.half_request_bytes >= len(HALF_OF_ONE))
        for _ in range(count):
            nursery.start_soon(wait, HALF_OF_ONE[:100_000])
        await becomes(lambda: half._waiting["127.0.0.2"] == count)
        held, looks = broker.half_request_bytes, 0
        _, frame = other.encode(produce_request("t", batch(bytes(300_000))), 9)
        await other.send_bytes(frame[:150_000])
        await becomes(lambda: broker.half_request_bytes > held)
        await other.send_bytes(frame[150_000:])
        await other.receive(ProduceResponse, 9)
        await trio.testing.wait_all_tasks_blocked()
        assert looks < count
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(20))
async def test_whoever_may_go_on_is_woken_and_nobody_is_forgotten(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Requests of any size, some larger than the room, from three addresses; some are given up.
    Between two steps of them everybody waits who has to, and nobody else."""
    random = Random(seed)
    half, count = HalfRequests(budget=1_000, host_budget=600), 60
    steps: list[trio.Event] = []
    done = 0

    async def request(host: str, size: int, pieces: int, scope: trio.CancelScope) -> None:
        nonlocal done
        held, holder = 0, object()
        with scope:
            try:
                for _ in range(pieces):
                    if half.is_full(host, holder):
                        await half.wait_room(host, holder)
                    held += size
                    half.change(host, holder, size)
                    steps.append(trio.Event())
                    await steps[-1].wait()
            finally:
                if held:
                    half.change(host, holder, -held)
        done += 1

    scopes = [trio.CancelScope() for _ in range(count)]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for scope in scopes:
                size, pieces = random.choice([50, 200, 700]), random.randrange(1, 4)
                nursery.start_soon(request, random.choice("ABC"), size, pieces, scope)
            while done < count:
                await trio.testing.wait_all_tasks_blocked()
                for holder, (host, _) in half._rooms.items():
                    assert half.is_full(host, holder), "it may go on, and was not woken"
                if done < count:
                    assert steps, "all of them wait"
                    steps.pop(random.randrange(len(steps))).set()
                if random.random() < 0.1:
                    random.choice(scopes).cancel()
                if random.random() < 0.1:
                    half.reconfigure(random.choice([500, 1_000, 1_500]), random.choice([300, 600]))
    assert not half.held_bytes
    assert not half._line
    assert not half._rooms
    assert not any(half.is_waited_for(host) for host in "ABC")


async def test_addresses_take_turns_to_have_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    half, went = HalfRequests(budget=100, host_budget=100), list[str]()
    first = object()
    half.change("A", first, 200)

    async def wait(host: str, name: str) -> None:
        await half.wait_room(host, name)
        went.append(name)
        half.change(host, name, 200)
        await trio.testing.wait_all_tasks_blocked()
        half.change(host, name, -200)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for name in ("A1", "A2", "A3", "B1", "B2"):
                nursery.start_soon(wait, name[0], name)
                await trio.testing.wait_all_tasks_blocked()
            half.change("A", first, -200)
    assert went == ["A1", "B1", "A2", "B2", "A3"]
