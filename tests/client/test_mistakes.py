"""What a program does wrong is said in a sentence, at once, and leaves the client as it was."""

import math
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import anyio
import pytest

from segbroker.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    BrokerUnreachable,
    BusyError,
    ClosedError,
    Consumer,
    DeliveryFailed,
    Outgoing,
    Producer,
    ProducerFenced,
    Security,
    SegbrokerError,
    TimedOut,
    async_transform,
    transform,
)
from segbroker.client.errors import MessageTooLarge

from ..support.daemon import Daemon
from ..support.waiting import within_one_of
from .conftest import Run

# Typed programs do not get here: whoever has no type checker gets the sentence instead.
Mistake = Callable[[Any], object]

SENT_WRONGLY: dict[str, tuple[Mistake, str]] = {
    "text": (lambda p: p.send("t", "x"), "value is a str, not bytes or None; encode it first"),
    "a number as key": (lambda p: p.send("t", b"", key=1), "key is a int, not bytes"),
    "headers as text": (lambda p: p.send("t", b"", headers="a"), "'a' are not pairs"),
    "a header that is no pair": (
        lambda p: p.send("t", b"", headers=[{"a": b"b"}]),
        "header {'a': b'b'} is not a (str, bytes or None)",
    ),
    "a header of text": (
        lambda p: p.send("t", b"", headers={"a": "b"}),
        "header ('a', 'b') is not a (str, bytes or None)",
    ),
    "half a character": (lambda p: p.send("t", b"", headers={"\ud800": b""}), "surrogates"),
    "a partition by name": (lambda p: p.send("t", b"", partition="0"), "partition='0' is not an"),
    "seconds": (lambda p: p.send("t", b"", timestamp_ms=time.time()), "is a float, not an int"),
    "a date": (lambda p: p.send("t", b"", timestamp_ms=datetime.now()), "is a datetime, not an"),
    "a time before 1970": (lambda p: p.send("t", b"", timestamp_ms=-5), "-5 is not between 1970"),
    "one value for many": (lambda p: p.send_many("t", b"x"), "values are a bytes: one value"),
    "a text among many": (lambda p: p.send_many("t", [b"a", "b"]), "value is a str"),
    "a wrong key of many": (lambda p: p.send_many("t", [b""], keys=[1]), "key is a int"),
    "a text as time-out": (lambda p: p.flush("5"), "timeout='5' is not a number of seconds"),
    "a wrong time of many": (lambda p: p.send_many("t", [b""], timestamp_ms=1.5), "is a float"),
}


@pytest.mark.parametrize("mistake", SENT_WRONGLY)
def test_what_cannot_be_sent_raises_and_the_producer_goes_on(
    daemon: Daemon, topic: str, mistake: str
) -> None:
    do, sentence = SENT_WRONGLY[mistake]
    with Producer(daemon.address, linger_ms=60_000) as producer:
        producer.partitions_for("t")
        with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
            do(producer)
        # Nothing of it is under way, or this would wait for it.
        producer.flush(60)
        assert producer.send(topic, b"next").result(60).offset == 0


READ_WRONGLY: dict[str, tuple[Mistake, str]] = {
    "a topic for a partition": (lambda c: c.pause("t"), "'t' is not a (topic, partition)"),
    "two arguments": (lambda c: c.resume("t", 0), "'t' is not a (topic, partition)"),
    "a text to assign": (lambda c: c.assign("t"), "'t' is not a list of (topic, partition)"),
    "a pair to assign": (lambda c: c.assign(("t", 0)), "'t' is not a (topic, partition)"),
    "a start to assign": (lambda c: c.assign([("t", 0)], start=1.5), "start=1.5 is not"),
    "a start to subscribe": (lambda c: c.subscribe(["t"], start=1.5), "start=1.5 is not"),
    "seconds to poll": (lambda c: c.poll(1.0), "max_records=1.0 is not an int; the time is"),
    "no records": (lambda c: c.poll(0), "max_records=0 is not a number >= 1"),
    "a text as time-out": (lambda c: c.poll(timeout_ms="1"), "timeout_ms='1' is not a number"),
    "no number as time-out": (lambda c: c.poll(timeout_ms=math.nan), "timeout_ms=nan is not a"),
    "seconds to look up": (
        lambda c: c.offsets_for_times({("t", 0): 1.5}),
        "time 1.5 is neither an int of milliseconds nor a datetime",
    ),
    "an offset that no log has": (
        lambda c: c.assign([("t", 0)], start=1 << 63),
        "start=9223372036854775808 is above 9223372036854775807",
    ),
    "nothing to read": (lambda c: next(iter(c)), "nothing to read: give topics to the consumer"),
    "nothing to poll": (lambda c: c.poll(), "nothing to read"),
    "nothing for batches": (lambda c: next(c.batches()), "nothing to read"),
}


@pytest.mark.parametrize("mistake", READ_WRONGLY)
def test_what_cannot_be_read_raises_and_the_consumer_goes_on(
    daemon: Daemon, topic: str, mistake: str
) -> None:
    do, sentence = READ_WRONGLY[mistake]
    with Consumer(daemon.address, stop_at_end=True) as consumer:
        with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
            do(consumer)
        with pytest.raises(TypeError, match="nothing to read"):
            consumer.poll(timeout_ms=60_000)
        consumer.assign([])
        assert list(consumer) == []


COMMITTED_WRONGLY: dict[str, tuple[object, str]] = {
    "a list": ([("t", 0, 1)], "offsets are a list, not a dict of (topic, partition) to offset"),
    "a text": ({("t", 0): "1"}, "offset '1' of ('t', 0) is not an int"),
    "below the log": ({("t", 0): -1}, "offset -1 of ('t', 0) is below 0"),
    "a topic": ({"t": 1}, "'t' is not a (topic, partition)"),
}


@pytest.mark.parametrize("mistake", COMMITTED_WRONGLY)
def test_what_cannot_be_committed_is_said(daemon: Daemon, topic: str, mistake: str) -> None:
    offsets, sentence = COMMITTED_WRONGLY[mistake]
    with (
        Consumer(daemon.address, topic, group=topic) as member,
        pytest.raises((TypeError, ValueError), match=re.escape(sentence)),
    ):
        member.commit(offsets)  # type: ignore[arg-type]  # the mistake


def test_a_commit_may_have_all_the_time_and_none_that_is_no_number(
    daemon: Daemon, topic: str
) -> None:
    with Consumer(daemon.address, topic, group=topic) as member:
        member.commit({}, timeout=math.inf)
        member.commit({}, timeout=-math.inf)
        with pytest.raises(TypeError, match="timeout='5' is not a number of seconds"):
            member.commit({}, timeout="5")  # type: ignore[arg-type]  # the mistake


def test_offsets_of_a_group_that_only_its_name_is_given_of_are_refused(
    daemon: Daemon, topic: str
) -> None:
    with Producer(daemon.address, transactional_id=topic) as producer, producer.transaction():
        with pytest.raises(TypeError, match="group is a str, not the consumer's group_metadata"):
            producer.send_offsets({(topic, 0): 1}, topic)  # type: ignore[arg-type]  # the mistake
        producer.send(topic, b"committed all the same")


ASKED_WRONGLY: dict[str, tuple[Mistake, str]] = {
    "a broker by name": (lambda a: a.broker_status("1"), "broker_id='1' is not an int"),
    "settings by name": (lambda a: a.describe_broker("1"), "broker_id='1' is not an int"),
    "a topic": (lambda a: a.delete_records({"t": 0}), "'t' is not a (topic, partition)"),
}


@pytest.mark.parametrize("mistake", ASKED_WRONGLY)
def test_what_cannot_be_asked_raises_and_the_admin_goes_on(
    daemon: Daemon, topic: str, mistake: str
) -> None:
    do, sentence = ASKED_WRONGLY[mistake]
    with Admin(daemon.address) as admin:
        with pytest.raises(TypeError, match=re.escape(sentence)):
            do(admin)
        admin.create_topic(topic)


MADE_WRONGLY: dict[str, tuple[Mistake, str]] = {
    "confluent's dict": (lambda of: of({"bootstrap.servers": "h"}), "bootstrap is a dict"),
    "nothing": (lambda of: of(None), "bootstrap=None is not"),
    "a pair": (lambda of: of(("127.0.0.1", 9092)), 'is not "host:port,host:port"'),
    "a URL": (lambda of: of("kafka://h:9092"), "'kafka://h:9092' is a URL, not host:port"),
    "a name of a protocol": (lambda of: of("h", security="SSL"), "security is a str, not a Securi"),
    "a client without a name": (lambda of: of("h", client_id=5), "client_id=5 is a int, not a str"),
    "a novel as name": (lambda of: of("h", client_id="x" * 40_000), "client_id of 40000 bytes"),
    "a month to answer in": (
        lambda of: of("h", request_timeout_ms=1 << 31),
        "request_timeout_ms=2147483648 is above 2147483647, what a request can say",
    ),
    "half a millisecond": (lambda of: of("h", request_timeout_ms=0.5), "0.5 is not a whole number"),
}


@pytest.mark.parametrize("mistake", MADE_WRONGLY)
@pytest.mark.parametrize("of", [Producer, Consumer, Admin, AsyncProducer])
def test_a_client_that_cannot_be_made_says_why(of: type, mistake: str) -> None:
    make, sentence = MADE_WRONGLY[mistake]
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        make(of)


@pytest.mark.parametrize(
    ("option", "value"),
    [("fetch_partition_bytes", 1 << 31), ("fetch_wait_ms", 1 << 31), ("fetch_min_bytes", 1 << 31)],
)
def test_what_no_fetch_can_say_is_no_setting(option: str, value: int) -> None:
    options: Any = {option: value}
    with pytest.raises(ValueError, match=f"{option}={value} is above"):
        Consumer("h", **options)


@pytest.mark.parametrize("option", ["session_timeout_ms", "commit_interval_ms"])
def test_a_member_has_a_time_for_everything_but_between_its_polls(option: str) -> None:
    nothing: Any = {option: None}
    with pytest.raises(ValueError, match=f"{option}=None is not a whole number >= 1"):
        Consumer("h", group="g", **nothing)


def test_a_request_that_cannot_be_written_fails_alone_and_its_client_goes_on(
    daemon: Daemon, topic: str
) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
        for do in (
            lambda: admin.delete_records({(topic, 0): 1 << 63}),
            lambda: admin.commit(topic, {(topic, 0): 1 << 63}),
            lambda: admin.create_topic("\ud800"),
        ):
            with pytest.raises(SegbrokerError, match="cannot carry this"):
                do()
        assert topic in admin.list_topics()


# Of bytes that are no UTF-8 Python makes lone surrogates; no request says the other.
NO_NAMES = {"no text": ("a\udc80", "lone surrogates"), "a novel": ("x" * 40_000, "40000 bytes")}


@pytest.mark.parametrize("what", NO_NAMES)
def test_a_name_that_no_request_can_carry_is_refused_at_once_and_the_client_goes_on(
    daemon: Daemon, topic: str, what: str
) -> None:
    name, sentence = NO_NAMES[what]
    with Producer(daemon.address) as producer:
        producer.send(topic, b"value").result(60)
        for send in (
            lambda: producer.send(name, b""),
            lambda: producer.send_many(name, [b""]),
            lambda: producer.send_nowait(name, b""),
            lambda: producer.partitions_for(name),
        ):
            with pytest.raises(ValueError, match=sentence):
                send()
        producer.send(topic, b"value").result(60)
    many = [f"{topic}-{number}" for number in range(10_001)]
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        calls: tuple[Callable[[], object], ...] = (
            lambda: consumer.subscribe(many),
            lambda: consumer.assign([(each, 0) for each in many]),
            lambda: consumer.assign([(topic, number) for number in range(100_001)]),
        )
        for too_many in calls:
            with pytest.raises(ValueError, match="at most"):
                too_many()
        for read in (
            lambda: consumer.subscribe([topic, name]),
            lambda: consumer.assign([(topic, 0), (name, 0)]),
            lambda: consumer.partitions_for(name),
            lambda: consumer.end_offsets((name, 0)),
            lambda: consumer.offsets_for_times({(name, 0): 1}),
        ):
            with pytest.raises(ValueError, match=sentence):
                read()
        assert len(list(consumer)) == 2
    with Consumer(daemon.address, topic, group=topic, stop_at_end=True) as member:
        for of_group in (
            lambda: member.subscribe([name]),
            lambda: member.commit({(name, 0): 1}),
            lambda: member.committed((name, 0)),
        ):
            with pytest.raises(ValueError, match=sentence):
                of_group()
        assert len(list(member)) == 2
    with Admin(daemon.address) as admin:
        for ask in (lambda: admin.offsets(name), lambda: admin.delete_records({(name, 0): 1})):
            with pytest.raises(ValueError, match=sentence):
                ask()
        assert topic in admin.list_topics()
    for made in (
        lambda: Consumer("h", name),
        lambda: Consumer("h", group=name),
        lambda: Consumer("h", group="g", instance_id=name),
        lambda: Producer("h", client_id=name),
        lambda: Producer("h", transactional_id=name),
    ):
        with pytest.raises(ValueError, match=sentence):
            made()


@pytest.mark.parametrize("what", ["user", "password"])
def test_a_login_that_is_no_text_is_refused_and_its_password_is_not_said(what: str) -> None:
    words: Any = {"user": "alice", "password": "secret", what: "secret\udc80"}
    with pytest.raises(ValueError, match=f"the {what} is no text") as caught:
        Security(mechanism="PLAIN", **words)
    assert "secret" not in str(caught.value)


def test_a_name_that_is_none_among_the_addresses_is_passed_over(daemon: Daemon, topic: str) -> None:
    for address in (f"broker..example:9092,{daemon.address}", f"{'a' * 70}.b:1,{daemon.address}"):
        for _ in range(4):  # they take turns
            with Producer(address) as producer:
                producer.send(topic, b"value").result(60)

    def is_said(within_ms: int) -> None:
        with pytest.raises(BrokerUnreachable, match=r"broker\.\.example"):
            Admin("broker..example:9092", connect_timeout_ms=within_ms).open()

    within_one_of((300, 5_000), is_said)


@pytest.mark.parametrize(
    ("of", "name", "instead"),
    [
        (Producer, "value_serializer", "encode them first"),
        (Producer, "retries", "delivery_timeout_ms"),
        (Producer, "max.in.flight.requests.per.connection", "one with idempotent=False"),
        (Consumer, "retries", "api_timeout_ms"),
        (Consumer, "value_deserializer", "decode them"),
        (Consumer, "max_poll_records", "poll(max_records=...)"),
        (Consumer, "max.poll.records", "poll(max_records=...)"),
        (Consumer, "topics", "topics follow the address"),
        (Consumer, "on_assign", "did you mean on_assigned?"),
        (Consumer, "on_revoke", "did you mean on_revoked?"),
        (Consumer, "enable.partition.eof", "did you mean stop_at_end?"),
        (Consumer, "fetch.max.bytes", "did you mean prefetch_bytes?"),
        (Consumer, "partition_assignment_strategy", "did you mean assignors?"),
        (Consumer, "on_commit", "commit() waits, and raises what went wrong"),
        (Producer, "api_timeout_ms", "send() waits up to delivery_timeout_ms"),
        (Producer, "max.block.ms", "send() waits up to delivery_timeout_ms"),
        (Producer, "message.timeout.ms", "did you mean delivery_timeout_ms?"),
        (Producer, "request.required.acks", "did you mean acks?"),
        (Producer, "on_delivery", "send() returns a delivery"),
        (Producer, "sasl_plain_username", "did you mean security?"),
        (Consumer, "patern", "did you mean pattern?"),
        (Admin, "bootstrap_servers", "did you mean bootstrap?"),
        (Admin, "api_timeout", "did you mean api_timeout_ms?"),
    ],
)
def test_what_other_clients_have_is_said_to_go_otherwise(
    of: Mistake, name: str, instead: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(instead)):
        of("h", **{name: 1})


def test_a_client_in_two_blocks_at_a_time_is_busy(run: Run, daemon: Daemon) -> None:
    with Producer(daemon.address) as producer:
        with pytest.raises(BusyError, match="open already"):
            producer.__enter__()
        with pytest.raises(BusyError, match=r"or open\(\), not both"):
            producer.open()
        assert repr(producer) == f"<Producer {daemon.address}, open>"
    assert repr(producer) == f"<Producer {daemon.address}, closed>"

    async def main() -> None:
        async with AsyncProducer(daemon.address) as producer:
            with pytest.raises(BusyError, match="open already: use one `async with` block"):
                await producer.__aenter__()

    run(main)


@pytest.mark.parametrize("bootstrap", ["the daemon's", "127.0.0.1:1"])
def test_a_client_that_was_open_is_not_opened_again(
    run: Run, daemon: Daemon, bootstrap: str
) -> None:
    address = daemon.address if bootstrap == "the daemon's" else bootstrap
    producer = Producer(address, connect_timeout_ms=1)
    with suppress(BrokerUnreachable), producer:
        pass
    with pytest.raises(ClosedError, match=r"opened and closed before.* make another"):
        producer.open()

    async def main() -> None:
        consumer = AsyncConsumer(address, "t", connect_timeout_ms=1)
        with suppress(BrokerUnreachable):
            async with consumer:
                pass
        with pytest.raises(ClosedError, match=r"opened and closed before.* make another"):
            async with consumer:
                pass

    run(main)


def test_a_large_record_whose_failure_was_seen_stands_in_nobodys_way(
    daemon: Daemon, topic: str
) -> None:
    with Producer(daemon.address, buffer_bytes=3 << 20) as producer:
        large = producer.send(topic, bytes(2 << 20))
        with pytest.raises(MessageTooLarge):
            large.result(60)
        assert producer.send(topic, b"next").result(60).offset == 0
        unseen = producer.send(topic, bytes(2 << 20))
        with pytest.raises(DeliveryFailed, match="1 record was not delivered"):
            producer.flush(60)
        assert unseen.done


def test_a_flush_says_how_long_it_waited(daemon: Daemon, topic: str) -> None:
    with Producer(daemon.address) as producer:
        producer.send(topic, b"first").result(60)
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            delivery = producer.send(topic, b"value")
            assert repr(delivery) == "<Delivery, under way>"
            with pytest.raises(TimedOut, match=r"within 0\.0 s"):
                producer.flush(0.0)
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        delivery.result(60)
        assert repr(delivery) == "<Delivery, decided>"


def test_settings_are_numbers_as_well(daemon: Daemon, topic: str) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, config={"retention.ms": 60_000, "preallocate": True})
        admin.alter_topic_config(topic, {"segment.ms": 70_000})
        config = admin.describe_topic(topic).config
        assert config["retention.ms"].value == "60000"
        assert config["preallocate"].value == "true"
        assert config["segment.ms"].value == "70000"
        with pytest.raises(TypeError, match="a setting is a str or a number"):
            admin.alter_topic_config(topic, {"segment.ms": [1]})  # type: ignore[dict-item]  # the mistake


def test_whose_place_was_taken_hears_that_it_is_fenced(
    run: Run, daemon: Daemon, topic: str
) -> None:
    with Producer(daemon.address, transactional_id=topic) as first:
        with first.transaction():
            first.send(topic, b"1")
        with Producer(daemon.address, transactional_id=topic) as second, second.transaction():
            second.send(topic, b"2")
        with pytest.raises(ProducerFenced), first.transaction():
            first.send(topic, b"3")

    async def main() -> None:
        async with AsyncProducer(daemon.address, transactional_id=topic) as first:
            async with first.transaction():
                await first.send(topic, b"1")
            with Producer(daemon.address, transactional_id=topic) as second, second.transaction():
                second.send(topic, b"2")
            with pytest.raises(ProducerFenced):
                async with first.transaction():
                    await first.send(topic, b"3")

    run(main)


TRANSFORMED_WRONGLY: dict[str, tuple[Any, str]] = {
    "one alone": (Outgoing("t", b"x"), "it has to return a list of them"),
    "a plain tuple": (
        [("t", b"x")],
        "returned an item of type tuple, not Outgoing(topic, value, ...)",
    ),
    "bytes": (b"x", "returned an item of type int, not Outgoing(topic, value, ...)"),
}


@pytest.mark.parametrize("mistake", TRANSFORMED_WRONGLY)
def test_what_cannot_be_made_of_a_record_is_said_and_aborted(
    daemon: Daemon, topic: str, mistake: str
) -> None:
    made, said = TRANSFORMED_WRONGLY[mistake]
    with Producer(daemon.address) as producer:
        producer.send(topic, b"in")
    with (
        Consumer(
            daemon.address, topic, group=topic, auto_commit=False, stop_at_end=True
        ) as consumer,
        Producer(daemon.address, transactional_id=topic) as producer,
        pytest.raises(TypeError, match=re.escape(said)),
    ):
        transform(consumer, producer, lambda record: made)

    async def main() -> None:
        async with (
            AsyncConsumer(
                daemon.address, topic, group=topic, auto_commit=False, stop_at_end=True
            ) as consumer,
            AsyncProducer(daemon.address, transactional_id=topic) as producer,
        ):
            with pytest.raises(TypeError, match=re.escape(said)):
                await async_transform(consumer, producer, lambda record: made)

    anyio.run(main)
