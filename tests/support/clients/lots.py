"""What the scenarios send, and what must come back."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]

CODECS: Final[tuple[Codec, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 100
FIRST_MS = 1_700_000_000_000
STEP_MS = 1000
# The records are years old: without this a broker would soon expire them.
KEEP = {"retention.ms": "-1"}


def value(n: int) -> bytes:
    return b"the value of record %d, " % n * 10


def key(n: int) -> bytes:
    return b"key-%d" % n


def headers(n: int) -> list[tuple[str, bytes]]:
    return [("n", b"%d" % n), ("empty", b"")]


def timestamp_ms(n: int) -> int:
    return FIRST_MS + n * STEP_MS


def check_equal(what: str, got: object, expected: object) -> None:
    """An assertion that also says what came, in every interpreter and under -O."""
    if got != expected:
        raise AssertionError(f"{what}: got {got!r}, expected {expected!r}")


def check_becomes(what: str, get: Callable[[], object], expected: object) -> None:
    """`check_equal` with patience: a Kafka cluster applies admin requests after it answered them.

    segbroker applies them before; the patience lets the same steps run against Apache Kafka.
    """
    deadline_s = time.monotonic() + 5
    while (got := get()) != expected and time.monotonic() < deadline_s:
        time.sleep(0.05)
    check_equal(what, got, expected)


async def check_becomes_async(
    what: str, get: Callable[[], Awaitable[object]], expected: object
) -> None:
    """`check_becomes` for a coroutine."""
    deadline_s = time.monotonic() + 5
    while (got := await get()) != expected and time.monotonic() < deadline_s:
        await asyncio.sleep(0.05)
    check_equal(what, got, expected)


def check_lot(records: list[Any]) -> None:
    """Records of kafka-python or of aiokafka are a whole lot, from offset 0 on."""
    numbered = range(len(records))
    check_equal("offsets", [r.offset for r in records], list(numbered))
    check_equal("values", [r.value for r in records], [value(n) for n in numbered])
    check_equal("keys", [r.key for r in records], [key(n) for n in numbered])
    check_equal("headers", [list(r.headers) for r in records], [headers(n) for n in numbered])
    check_equal("times", [r.timestamp for r in records], [timestamp_ms(n) for n in numbered])


def codec_of(name: str) -> str | None:
    """As the `compression_type` of both."""
    return None if name == "none" else name
