"""A client in another language, spoken to in lines of JSON, and the steps that are played with it.

The client's program (tests/support/clients/languages/) reads one request per line from its standard
input and writes one answer per line to its standard output:

    {"verb": "produce", "topic": "t", "records": [...], "codec": "gzip"}   ->   {"is": null}
    {"verb": "offset_at", "topic": "t", "partition": 0, "timestamp": 17}   ->   {"is": 4}
    {"verb": "grow", "topic": "t", "partitions": 1}                        ->   {"error": "..."}

It is started as `COMMAND BOOTSTRAP`, holds at most one member of a group, ignores other lines of
its own that do not start with `{`, and ends without a word to the broker when its input ends: that
is how a member is killed.  Keys, values and headers are text.  A verb that a library has not is
not asked: `Spoken.lacks` says which steps that leaves out.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import lots
from .steps import Scene, Steps
from .together import PARTITIONS, PASSWORD, USER, Client, add_steps

CODECS = lots.CODECS
NEVER = (1_000_000,)


class Channel:
    """One running program."""

    def __init__(self, command: Sequence[str], bootstrap: str) -> None:
        self._process = subprocess.Popen(
            [*command, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, verb: str, **more: Any) -> Any:
        """The answer to one request.

        Raises:
            AssertionError: the program refused, or ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"verb": verb, **more}) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                if "error" in answer:
                    raise AssertionError(f"{verb}: {answer['error']}")
                return answer["is"]
        raise AssertionError(f"{verb}: the program ended with {self._process.wait()}")

    def close(self) -> None:
        """End it; the broker hears of it as of a crash."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()


@dataclass(frozen=True)
class Spoken(Client):
    """A library by the command that starts its program.

    Attributes:
        command: the program and its first words.
        codecs: what it compresses with by itself.
        lacks: any of "transactions", "static", "time", "idempotence".
    """

    command: tuple[str, ...]
    codecs: tuple[str, ...] = CODECS
    lacks: frozenset[str] = frozenset()

    def once(self, bootstrap: str, verb: str, **more: Any) -> Any:
        """Ask a program that is started for this and ended after it."""
        channel = Channel(self.command, bootstrap)
        try:
            return channel.ask(verb, **more)
        finally:
            channel.close()

    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.once(bootstrap, "create", topic=topic, partitions=partitions, configs={})

    def send(self, bootstrap: str, topic: str, values: list[bytes], **secure: Any) -> None:
        rows = [row(value.decode(), partition=n % PARTITIONS) for n, value in enumerate(values)]
        self.once(bootstrap, "produce", topic=topic, records=rows, **secure)

    def join(
        self, bootstrap: str, group: str, topic: str, place: str | None = None, **more: Any
    ) -> Any:
        channel = Channel(self.command, bootstrap)
        channel.ask("join", group=group, topic=topic, place=place, **more)
        return channel

    def poll(self, handle: Any) -> list[bytes]:
        return [value.encode() for value in handle.ask("poll")]

    def owned(self, handle: Any) -> set[int]:
        return set(handle.ask("owned"))

    def commit(self, handle: Any) -> None:
        handle.ask("commit")

    def leave(self, handle: Any) -> None:
        try:
            handle.ask("leave")
        finally:
            handle.close()

    def secure(self, authority: str) -> dict[str, Any]:
        return {"authority": authority, "user": USER, "password": PASSWORD}

    def committed_only(self) -> dict[str, Any]:
        return {"committed_only": True}

    def transact(
        self,
        bootstrap: str,
        transactional_id: str,
        topic: str,
        values: list[bytes],
        *,
        commit: bool,
        offsets: tuple[str, str, int] | None = None,
    ) -> None:
        self.once(
            bootstrap,
            "transact",
            id=transactional_id,
            topic=topic,
            records=[row(value.decode()) for value in values],
            commit=commit,
            offsets=offsets and dict(zip(("group", "topic", "offset"), offsets, strict=True)),
        )

    def committed(self, bootstrap: str, group: str, topic: str) -> int | None:
        offset: int | None = self.once(bootstrap, "committed", group=group, topic=topic)
        return offset


def row(value: str, *, partition: int = 0, n: int | None = None) -> dict[str, Any]:
    """A record as a program takes it; with `n`, the n-th of the lot."""
    if n is None:
        return {"partition": partition, "key": None, "value": value, "headers": []}
    return {
        "partition": partition,
        "key": lots.key(n).decode(),
        "value": value,
        "headers": [[name, text.decode()] for name, text in lots.headers(n)],
        "timestamp": lots.timestamp_ms(n),
    }


def lot() -> list[dict[str, Any]]:
    return [row(lots.value(n).decode(), n=n) for n in range(lots.COUNT)]


def check_lot(records: list[dict[str, Any]], first: int = 0) -> None:
    expected = [{**one, "offset": n} for n, one in enumerate(lot())][first:]
    lots.check_equal("count", len(records), len(expected))
    for got, want in zip(records, expected, strict=True):
        lots.check_equal("record", got, want)


def steps_of(client: Spoken, module: str) -> Steps:
    """Every step that the library has; `module` runs them as a program."""
    steps = Steps()

    def made(scene: Scene, name: str, configs: dict[str, str] | None = None) -> str:
        topic = scene.topic(name)
        wanted = {**lots.KEEP, **(configs or {})}
        client.once(scene.bootstrap, "create", topic=topic, partitions=1, configs=wanted)
        return topic

    def sent(scene: Scene, name: str, **settings: Any) -> str:
        topic = made(scene, name)
        client.once(scene.bootstrap, "produce", topic=topic, records=lot(), **settings)
        return topic

    def read(scene: Scene, topic: str, offset: int = 0, count: int = lots.COUNT) -> Any:
        where = {"topic": topic, "partition": 0, "offset": offset, "count": count}
        return client.once(scene.bootstrap, "read", **where)

    def since(feature: str) -> tuple[int, ...]:
        return NEVER if feature in client.lacks else (0,)

    @steps.step()
    def every_codec_comes_back_as_sent(scene: Scene) -> None:
        for codec in client.codecs:
            check_lot(read(scene, sent(scene, f"theirs-{codec}", codec=codec)))

    @steps.step(since=since("idempotence"))
    def every_codec_comes_back_from_an_idempotent_producer(scene: Scene) -> None:
        for codec in client.codecs:
            name = f"idempotent-{codec}"
            check_lot(read(scene, sent(scene, name, codec=codec, idempotent=True)))

    @steps.step()
    def every_kind_of_acks_delivers(scene: Scene) -> None:
        for acks in (0, 1, -1):
            check_lot(read(scene, sent(scene, f"acks{acks}", acks=acks)))

    @steps.step()
    def reads_what_our_client_wrote(scene: Scene) -> None:
        for codec in client.codecs:
            check_lot(read(scene, f"{scene.ours}-{codec}"))

    @steps.step()
    def seeks_to_an_offset_the_start_and_the_end(scene: Scene) -> None:
        topic = sent(scene, "seek")
        check_lot(read(scene, topic, 37, lots.COUNT - 37), first=37)
        ends = client.once(scene.bootstrap, "ends", topic=topic, partition=0)
        lots.check_equal("start and end", ends, [0, lots.COUNT])

    @steps.step(since=since("time"))
    def an_offset_is_found_by_time_to_the_exact_record(scene: Scene) -> None:
        topic = sent(scene, "times")
        for time_ms, offset in (
            (0, 0),
            (lots.timestamp_ms(41) + 1, 42),
            (lots.timestamp_ms(99), 99),
        ):
            where = {"topic": topic, "partition": 0, "timestamp": time_ms}
            lots.check_equal("offset", client.once(scene.bootstrap, "offset_at", **where), offset)

    @steps.step()
    def topics_are_listed_grown_and_deleted(scene: Scene) -> None:
        topic = made(scene, "grown")

        def partitions() -> object:
            return client.once(scene.bootstrap, "topics").get(topic)

        lots.check_becomes("made", partitions, 1)
        client.once(scene.bootstrap, "grow", topic=topic, partitions=5)
        lots.check_becomes("grown", partitions, 5)
        refused(scene, "grow", topic=topic, partitions=3)
        client.once(scene.bootstrap, "delete", topic=topic)
        lots.check_becomes("deleted", partitions, None)

    @steps.step()
    def what_cannot_be_created_is_refused(scene: Scene) -> None:
        topic = made(scene, "twice")
        refused(scene, "create", topic=topic, partitions=1, configs={})
        refused(scene, "create", topic="with spaces", partitions=1, configs={})
        refused(
            scene, "create", topic=scene.topic("c"), partitions=1, configs={"retention.ms": "soon"}
        )

    def refused(scene: Scene, verb: str, **more: Any) -> None:
        try:
            client.once(scene.bootstrap, verb, **more)
        except AssertionError:
            return
        raise AssertionError(f"{verb} {more} was not refused")

    @steps.step()
    def configs_are_described_and_altered(scene: Scene) -> None:
        topic = made(scene, "configs", {"retention.ms": "3600000"})

        def retention() -> object:
            return client.once(scene.bootstrap, "config", topic=topic, name="retention.ms")

        lots.check_becomes("as created", retention, "3600000")
        client.once(
            scene.bootstrap, "set_config", topic=topic, name="retention.ms", value="7200000"
        )
        lots.check_becomes("altered", retention, "7200000")

    add_steps(
        steps,
        client,
        module,
        static_since=since("static"),
        transactions_since=since("transactions"),
    )
    return steps
