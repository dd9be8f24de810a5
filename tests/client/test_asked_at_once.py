"""An Admin that is asked several things at once, about one topic: each call looks at it anew."""

from collections.abc import Callable
from typing import Any

import pytest

from segbroker.client import administration
from segbroker.client.completion import Completion
from segbroker.client.engine import Call
from segbroker.client.errors import UnknownTopicOrPartition
from segbroker.client.records import TopicPartition
from segbroker.protocol.messages_admin import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)
from segbroker.protocol.schema import Message

from .simulated import World

FIRST = TopicPartition("t", 0)


class Asked:
    """A world in which something begins between any two steps of what was asked before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World(create_topics=False)
        self.calls: list[Completion[Any]] = []
        reply = self.world.broker._reply

        def answered(request: Message, version: int) -> tuple[Message, int]:
            if isinstance(request, DeleteRecordsRequest):
                return _deleted(request), version
            return reply(request, version)

        monkeypatch.setattr(self.world.broker, "_reply", answered)
        self.world.cluster.create("kept in view")
        self.world.engine.cluster.want(["kept in view"])

    def offsets(self) -> Call[Any]:
        return administration.offsets(self.world.engine, "t", "end", only_served=False)

    def delete_records(self) -> Call[Any]:
        return administration.delete_records(self.world.engine, {FIRST: 1})

    def ask(self, *makes: Callable[[], Call[Any]]) -> None:
        world = self.world
        for _ in range(20):
            for make in makes:
                self.calls.append(world.engine.call(make(), world.now_ms))
                world.turn()
        world.run(lambda: all(call.done for call in self.calls))


def _deleted(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    rows = [DeleteRecordsResponsePartition(partition_index=0, low_watermark=1)]
    return DeleteRecordsResponse(
        topics=[DeleteRecordsResponseTopic(name=t.name, partitions=rows) for t in request.topics]
    )


def test_what_one_looks_at_is_there_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asked.world.cluster.create("t")
    asked.ask(asked.offsets, asked.delete_records)
    for call in asked.calls:
        assert call.result().keys() == {FIRST}


def test_what_is_not_there_is_told_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also to who asks when the answer to another has come, and nobody has heard of it yet."""
    asked = Asked(monkeypatch)
    world, known = asked.world, asked.world.engine.cluster.topics

    def has_come() -> bool:
        return asked.calls[-1].done or ("t" in known and known["t"].is_settled)

    for make in (asked.offsets, asked.delete_records, asked.offsets):
        asked.calls.append(world.engine.call(make(), world.now_ms))
        world.run(has_come)
    world.run(lambda: all(call.done for call in asked.calls))
    for call in asked.calls:
        assert isinstance(call.error, UnknownTopicOrPartition)
