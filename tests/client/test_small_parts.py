"""Settings, back-off, completions, errors: the values that everything else stands on."""

import gc
import inspect
import pickle
import re
import threading
from collections.abc import Callable
from copy import copy
from functools import partial
from random import Random
from typing import Any

import anyio
import pytest

import segbroker.client
from segbroker.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    Deliveries,
    Producer,
    ShareConsumer,
)
from segbroker.client.async_driver import wait_done as async_wait_done
from segbroker.client.backoff import Backoff
from segbroker.client.clock import now_ms
from segbroker.client.completion import Completion, Waitable, Waker
from segbroker.client.errors import (
    BY_CODE,
    AcknowledgeFailed,
    BrokerError,
    ConnectionLost,
    DeliveryFailed,
    FailedAcknowledgement,
    GapError,
    MessageTooLarge,
    SegbrokerError,
    TimedOut,
    TopicRecreated,
    Undelivered,
    UnknownServerError,
    broker_error,
)
from segbroker.client.inbox import Many
from segbroker.client.producer_batch import PartitionQueue, ProducerBatch
from segbroker.client.records import Gap
from segbroker.client.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    parse_acks,
    parse_bootstrap,
    parse_codec,
    producer_settings,
)
from segbroker.client.waiting import wait_done
from segbroker.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("host:1", (("host", 1),)),
        ("host", (("host", 9092),)),
        ("[::1]", (("::1", 9092),)),
        (" a:1 , b:2 ", (("a", 1), ("b", 2))),
        ("[::1]:5", (("::1", 5),)),
        ("::1", (("::1", 9092),)),
        (["a:1", "b"], (("a", 1), ("b", 9092))),
    ],
)
def test_bootstrap_addresses_are_read(text: str, addresses: tuple[tuple[str, int], ...]) -> None:
    assert parse_bootstrap(text) == addresses


NOWHERE = (
    *("", ",", "host:x", "host:0", "host:65536", "[::1:5", ":9092", "a b:1", "1:2:3", "::::"),
    *("host:", "[::1]:", "a:1,host:"),  # as of `$HOST:$PORT` without PORT
)


@pytest.mark.parametrize("text", NOWHERE)
def test_bootstrap_addresses_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bootstrap"):
        parse_bootstrap(text)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("linger", "did you mean linger_ms?"),
        ("lingers_ms", "did you mean linger_ms?"),
        ("batch.size", "did you mean batch_bytes?"),
        ("quantum_foam", "help(Producer) lists them"),
        # What only a consumer takes would lead to the next mistake.
        ("group_id", "help(Producer) lists them"),
        ("bootstrap_servers", "did you mean bootstrap?"),
    ],
)
def test_an_option_that_does_not_exist_is_answered_with_the_one_that_is_meant(
    given: str, hint: str
) -> None:
    expected = re.escape(f"Producer has no option {given!r}; {hint}")
    with pytest.raises(TypeError, match=f"^{expected}$"):
        Producer("127.0.0.1:1", **{given: 5})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no option 'group_id'; did you mean group"):
        Consumer("127.0.0.1:1", "orders", group_id="billing")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"no option 'batch_size'; help\(Consumer\) lists them"):
        Consumer("127.0.0.1:1", "orders", batch_size=5)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "make", [Consumer, partial(ShareConsumer, group="g"), partial(AsyncShareConsumer, group="g")]
)
def test_topics_in_a_list_are_told_to_be_given_one_by_one(make: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"topic \['t0', .* is a list, not a str") as caught:
        make("127.0.0.1:1", [f"t{number}" for number in range(1_000)])
    assert "*topics" in str(caught.value)
    assert len(str(caught.value)) < 200, "of a thousand topics some are enough"


@pytest.mark.parametrize(
    "kind", [Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer]
)
def test_help_begins_with_an_example(kind: type) -> None:
    assert kind.__doc__ is not None
    assert "    with " in kind.__doc__ or "    async with " in kind.__doc__


@pytest.mark.parametrize("kind", [Producer, AsyncProducer])
def test_a_producer_has_no_option_of_another_name(kind: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match="Producer has no option 'lingers_ms'"):
        kind("127.0.0.1:1", lingers_ms=3)
    with pytest.raises(ValueError, match="compression='zip' is not one of none, gzip"):
        kind("127.0.0.1:1", compression="zip")
    with pytest.raises(ValueError, match='idempotent=True needs acks="all"'):
        kind("127.0.0.1:1", acks=1, idempotent=True)


def test_a_small_buffer_alone_makes_small_batches() -> None:
    _, settings = producer_settings("a:1", {"buffer_bytes": 10_000})
    assert (settings.batch_bytes, settings.buffer_bytes) == (10_000, 10_000)
    _, settings = producer_settings("a:1", {"buffer_bytes": 10_000, "batch_bytes": 2_000})
    assert settings.batch_bytes == 2_000
    _, settings = producer_settings("a:1", {"buffer_bytes": 1 << 20})
    assert settings.batch_bytes == ProducerSettings().batch_bytes
    with pytest.raises(ValueError, match="batch_bytes=20000 is larger than buffer_bytes=10000"):
        producer_settings("a:1", {"buffer_bytes": 10_000, "batch_bytes": 20_000})
    with pytest.raises(ValueError, match="buffer_bytes=0"):
        producer_settings("a:1", {"buffer_bytes": 0})


def test_settings_name_the_key_and_the_value() -> None:
    bootstrap = (("a", 1),)
    with pytest.raises(ValueError, match="request_timeout_ms=0"):
        ClientSettings(bootstrap=bootstrap, request_timeout_ms=0)
    with pytest.raises(ValueError, match=r"linger_ms=1\.5"):
        ProducerSettings(linger_ms=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="idempotent=False"):
        ProducerSettings(acks=1)
    with pytest.raises(ValueError, match="batch_bytes=200 is larger than buffer_bytes=100"):
        ProducerSettings(batch_bytes=200, buffer_bytes=100)
    with pytest.raises(ValueError, match="on_reset='never'"):
        ConsumerSettings(on_reset="never")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="acks=2"):
        parse_acks(2)
    with pytest.raises(ValueError, match="compression='rar'"):
        parse_codec("rar")


def test_each_delay_is_in_the_upper_half_of_a_doubling_range_up_to_the_maximum() -> None:
    backoff = Backoff(Random(5), 50, 1_000)
    for ceiling in (50, 100, 200, 400, 800, 1_000, 1_000):
        assert ceiling / 2 <= backoff.next_delay_ms() <= ceiling
    backoff.reset()
    assert backoff.next_delay_ms() <= 50


def test_delays_of_many_clients_are_spread() -> None:
    delays = {Backoff(Random(seed), 1_000, 1_000).next_delay_ms() for seed in range(100)}
    assert len(delays) > 50


def test_a_completion_wakes_whoever_waits_and_whoever_comes_late() -> None:
    completion: Completion[int] = Completion()
    woken: list[str] = []
    completion.on_done(lambda: woken.append("early"))
    completion.resolve(5)
    completion.on_done(lambda: woken.append("late"))
    assert woken == ["early", "late"]
    assert completion.result() == 5


def test_a_failed_completion_raises() -> None:
    completion: Completion[int] = Completion()
    completion.fail(TimedOut("too late"))
    with pytest.raises(TimedOut, match="too late"):
        completion.result()


def test_no_waker_is_lost_between_two_threads() -> None:
    for _ in range(500):
        completion: Completion[None] = Completion()
        event = threading.Event()
        barrier = threading.Barrier(2)

        def setter(done: Completion[None] = completion, start: threading.Barrier = barrier) -> None:
            start.wait()
            done.resolve(None)

        thread = threading.Thread(target=setter)
        thread.start()
        barrier.wait()
        completion.on_done(event.set)
        assert event.wait(60)
        thread.join()


def _waited(what: Waitable) -> None:
    for _ in range(300):
        assert not wait_done(what, 0.01)


async def _waited_on_a_loop(what: Waitable) -> None:
    for _ in range(300):
        with anyio.move_on_after(0):
            await async_wait_done(what)


class _Late(ProducerBatch):
    """It is acknowledged while somebody waits for it, and that takes some of his time."""

    __slots__ = ()

    def on_done(self, waker: Waker) -> None:
        begun_ms = now_ms()
        while now_ms() < begun_ms + 2:
            pass
        self.finish(0, -1)
        super().on_done(waker)


def test_who_waits_in_vain_for_many_records_is_told_how_long_it_was_to_be() -> None:
    """Not what was left of that when the last batch was waited for."""
    many = Many("t", [b"a", b"b"], None, None, 0, None)
    queue = PartitionQueue("t", 0, lambda at_ms: None)
    batches = [_Late(queue, 0, 0), ProducerBatch(queue, 0, 0)]
    many.span.runs[0] = [(0, 1, batches[0], 0), (1, 1, batches[1], 0)]
    with pytest.raises(TimedOut, match=r"not done within 0\.01 s"):
        Deliveries(many).result(timeout=0.01)


@pytest.mark.parametrize("loop", [None, "trio", "asyncio"])
@pytest.mark.parametrize("what", ["a completion", "a batch"])
def test_of_who_gave_up_waiting_nothing_is_left(loop: str | None, what: str) -> None:
    # As an idle consumer is polled, for days.
    waited: Waitable = Completion()
    if what == "a batch":
        waited = ProducerBatch(PartitionQueue("t", 0, lambda at_ms: None), 0, 0)
    wait = (
        partial(_waited, waited)
        if loop is None
        else partial(anyio.run, _waited_on_a_loop, waited, backend=loop)
    )
    wait()
    gc.collect()
    before = len(gc.get_objects())
    wait()
    gc.collect()
    assert len(gc.get_objects()) < before + 100


def test_each_code_has_its_class_and_says_with_what_it_was_met() -> None:
    error = broker_error(ErrorCode.TOPIC_ALREADY_EXISTS, "create topic 'a'")
    assert type(error) is BY_CODE[36]
    assert str(error) == "create topic 'a': A topic of this name exists"
    assert not error.retryable
    assert broker_error(6, "a-0").retryable


def test_what_the_broker_said_stands_in_the_message() -> None:
    error = broker_error(ErrorCode.INVALID_CONFIG, "topic 'a'", "segment.bytes=-1 is below 1024")
    assert str(error) == "topic 'a': segment.bytes=-1 is below 1024"


def test_a_code_without_a_class_is_still_an_error_with_its_number() -> None:
    assert isinstance(broker_error(9_999, "a"), UnknownServerError)
    assert "9999" in str(broker_error(9_999, "a"))
    assert "INVALID_REGISTRATION" in str(broker_error(119, "a"))
    assert "INVALID_REGISTRATION: not you" in str(broker_error(119, "a", "not you"))
    assert "9999" in str(broker_error(9_999, "a", "not now"))


def test_a_code_without_a_class_is_worth_as_many_tries_as_the_protocol_says() -> None:
    for code in ErrorCode:
        assert broker_error(code, "a").retryable == code.retryable, code.name
        assert broker_error(code, "a").code == code


def test_every_class_of_the_table_is_a_broker_error_with_its_code() -> None:
    for code, cls in BY_CODE.items():
        assert issubclass(cls, BrokerError)
        assert cls.code == code
        assert cls.retryable is ErrorCode.of(code).retryable


def test_a_failed_delivery_names_some_and_holds_all() -> None:
    undelivered = [Undelivered("a", 0, None, b"%d" % i, (), 0, TimedOut("late")) for i in range(10)]
    error = DeliveryFailed(undelivered)
    assert error.undelivered == undelivered
    assert str(error).startswith("10 records were not delivered: a-0 value of 1 bytes: late;")
    assert str(error).endswith("and 7 more")


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    for name in segbroker.client.__all__:
        thing = getattr(segbroker.client, name)
        assert name in dir(segbroker.client)
        assert thing.__doc__, name
        for method, function in vars(thing).items():
            if inspect.isfunction(function) and not method.startswith("_"):
                assert function.__doc__, f"{name}.{method}"


@pytest.mark.parametrize(
    "error",
    [
        GapError(Gap("t", 0, 1, 2, "ttl")),
        TopicRecreated(Gap("t", 0, 1, 1, "recreated")),
        DeliveryFailed([Undelivered("t", 0, None, b"x", (("a", None),), 7, TimedOut("late"))]),
        AcknowledgeFailed([FailedAcknowledgement("t", 0, (1, 2), "accept", TimedOut("late"))]),
        ConnectionLost("reset", wants="a login"),
        MessageTooLarge(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_a_worker_process_arrives_as_it_was(error: SegbrokerError) -> None:
    """One that cannot be read there has a pool of processes wait for its result for ever."""
    error.add_note("while flushing")
    for arrived in (pickle.loads(pickle.dumps(error)), copy(error)):
        assert type(arrived) is type(error)
        assert str(arrived) == str(error)
        assert repr(vars(arrived)) == repr(vars(error))
