"""Who asks with the longest texts and the extreme numbers that fit gets an answer all the same.

A refusal often repeats what was asked for: a sentence around a name of 32,767 bytes is longer than
a string can be, and what cannot be encoded would be no answer but the end of the connection.
"""

from collections.abc import Iterator
from random import Random
from typing import cast
from uuid import UUID

import pytest

from segbroker.protocol import limits
from segbroker.protocol.api_keys import SERVED, ApiKey, request_class
from segbroker.protocol.fields import Field
from segbroker.protocol.messages_admin import (
    CreatePartitionsResponse,
    CreatePartitionsResponseTopic,
)
from segbroker.protocol.schema import Message

from ..protocol.random_messages import BITS
from .dispatch import CASES, dispatch, served, stop

SIZE = limits.STRING_SIZE_MAX
# The third is four times as long where it is quoted.
TEXTS = ("x" * SIZE, "é" * (SIZE // 2), "\0" * SIZE, "t")
ROUNDS = 3


@pytest.fixture(scope="module", autouse=True)
def _broker() -> Iterator[None]:
    yield
    stop()


@pytest.fixture(autouse=True)
def _each_for_itself() -> None:
    served()[1].seen.clear()


def extreme(cls: type[Message], version: int, random: Random) -> Message:
    """A message of extremes; arrays have one item."""
    return cls(
        **{
            field.name: [_one(field, version, random)]
            if field.is_array
            else _one(field, version, random)
            for field in cls.fields()
            if field.is_in(version)
        }
    )


def _one(field: Field, version: int, random: Random) -> object:
    if field.struct is not None:
        return extreme(cast(type[Message], field.struct), version, random)
    match field.kind.name:
        case "string":
            return random.choice(TEXTS)
        case "bytes" | "records":
            return random.randbytes(61)
        case "uuid":
            return UUID(bytes=random.randbytes(16))
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.choice((0.0, -1.0, 1e308, float("inf"), float("-inf"), float("nan")))
        case "uint16":
            return 0xFFFF
        case _:
            top = 1 << BITS[field.kind.format] - 1
            return random.choice((0, 1, -1, -2, top - 1, -top))


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_the_longest_texts_and_extreme_numbers_are_answered(key: ApiKey) -> None:
    random = Random(key)
    for choice, (of, version) in enumerate(CASES):
        if of != key:
            continue
        for _ in range(ROUNDS):
            message = extreme(request_class(key), version, random)
            dispatch(choice.to_bytes(2, "big") + b"".join(message.encode(version)))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("text", ["a" * (SIZE + 1), "é" * SIZE])
def test_a_message_that_is_too_long_for_a_string_is_cut_at_a_character(
    text: str, version: int
) -> None:
    row = CreatePartitionsResponseTopic(name="t", error_code=3, error_message=text)
    encoded = b"".join(CreatePartitionsResponse(results=[row]).encode(version))
    (read,) = CreatePartitionsResponse.decode(encoded, version)[0].results
    assert read.error_message == text[: SIZE // len(text[0].encode())]
