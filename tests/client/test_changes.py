"""What changes something at the broker is sent once: again only where it was not sent at all."""

from segbroker.client import administration
from segbroker.client.completion import Completion
from segbroker.client.errors import TimedOut
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.headers import decode_request, encode_response, parse_request_header
from segbroker.protocol.messages_admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
)

from .simulated import World


class Silent:
    """A broker that takes connections and says nothing on them, until it is told to."""

    def __init__(self, world: World) -> None:
        self.is_silent = True
        self.answers_changes = True
        self.made: list[str] = []
        self._answer = world.broker.answer
        world.broker.answer = self.answer  # type: ignore[method-assign]

    def answer(self, frame: memoryview) -> bytes | None:
        header = parse_request_header(frame)
        if self.is_silent:
            return b""
        if header.api_key != ApiKey.CREATE_TOPICS:
            return self._answer(frame)
        request = decode_request(frame, header)
        assert isinstance(request, CreateTopicsRequest)
        names = [topic.name for topic in request.topics]
        self.made += names
        if not self.answers_changes:
            self.is_silent = True
            return b""
        reply = CreateTopicsResponse(
            topics=[CreateTopicsResponseTopic(name=n, error_message=None) for n in names]
        )
        key, version = header.api_key, header.api_version
        return b"".join(encode_response(reply, key, version, header.correlation_id))


def create(world: World) -> Completion[None]:
    call = administration.create_topic(
        world.engine, "a", partitions=1, config={}, replication_factor=1, validate_only=False
    )
    return world.engine.call(call, world.now_ms)


def test_a_change_waits_for_a_broker_that_takes_connections_and_does_not_answer() -> None:
    """As one that is stopped, or whose machine is: nothing was sent, so nothing was done."""
    world = World(create_topics=False)
    broker = Silent(world)
    call = create(world)
    world.run(lambda: world.now_ms > 20_000)
    assert not call.done
    broker.is_silent = False
    world.run(lambda: call.done)
    call.result()
    assert broker.made == ["a"]


def test_a_change_that_was_sent_and_not_answered_is_not_sent_again() -> None:
    world = World(create_topics=False)
    broker = Silent(world)
    broker.is_silent = broker.answers_changes = False
    call = create(world)
    world.run(lambda: call.done)
    assert isinstance(call.error, TimedOut)
    assert "did not reply in time" in str(call.error)
    assert broker.made == ["a"]
