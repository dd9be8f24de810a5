"""What is done to an answer, or to the connection that it comes on.

    Code          the error code at one place of the answer, which is that of a request not done, or
                  done
    Emptied       the rows at one place are not there, or null
    Missing       the last row at one place is not there
    Throttled     the broker asks for a pause
    Miscounted    the correlation id is that of another request
    Stranger      topics have other ids
    Older         the broker knows an api in its first version only
    Silent        no answer comes
    Cut           the connection ends: before the request comes to the broker, behind it, or within
                  the answer

A place is the path of a field, as ("responses", "partition_responses", "error_code").
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from segbroker.client.spoken import BY_ID, NEWEST, SPOKEN
from segbroker.protocol.api_keys import ApiKey, response_class
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ApiVersionsResponse
from segbroker.protocol.schema import Message

Place: TypeAlias = tuple[str, ...]

NOBODYS_ID: Final = UUID(int=0xDEAD << 64)

SAID: Final = "it is said so"
"""The message that goes with a code."""

# Why something is not told, of what was done.
NO_FAILURE: Final = frozenset({"topic_config_error_code"})

# What an answer has besides its code where nothing was done.
_BLANK: Final[dict[str, Any]] = {
    "records": b"",
    "acquired_records": [],
    "base_offset": -1,
    "producer_id": -1,
    "producer_epoch": -1,
    "leader_id": -1,
    "offset": -1,
    "committed_offset": -1,
}


@dataclass(frozen=True)
class Code:
    place: Place
    code: ErrorCode
    is_done: bool = False


@dataclass(frozen=True)
class Emptied:
    place: Place
    is_null: bool = False


@dataclass(frozen=True)
class Missing:
    place: Place


@dataclass(frozen=True)
class Throttled:
    ms: int = 20


@dataclass(frozen=True)
class Miscounted:
    by: int = 1


@dataclass(frozen=True)
class Stranger:
    pass


@dataclass(frozen=True)
class Older:
    api: ApiKey


@dataclass(frozen=True)
class Silent:
    pass


@dataclass(frozen=True)
class Cut:
    where: Literal["before", "behind", "within"]
    share: float = 0.5
    """Of the answer, that is passed on."""


Deed: TypeAlias = (
    Code | Emptied | Missing | Throttled | Miscounted | Stranger | Older | Silent | Cut
)


@dataclass(frozen=True)
class Fault:
    """Attributes:
    key: of the api.
    nth: from the how-manieth request of it on, from 1.
    times: how often; None: until all is well.
    then: what is done to the one behind these.
    """

    key: ApiKey
    deed: Deed
    nth: int = 1
    times: int | None = 1
    then: Deed | None = None

    @property
    def deeds(self) -> list[Deed]:
        return [self.deed] if self.then is None else [self.deed, self.then]

    @property
    def codes(self) -> list[Code]:
        return [deed for deed in self.deeds if isinstance(deed, Code)]

    @property
    def passes(self) -> bool:
        """Whether it is soon over, and says so."""
        # A broker has no such answer about its versions.
        return (
            self.times is not None
            and self.key != ApiKey.API_VERSIONS
            and all(
                isinstance(deed, Cut | Throttled)
                or (isinstance(deed, Code) and deed.code.retryable)
                for deed in self.deeds
            )
        )

    def of(self, number: int) -> Deed | None:
        """What is done to the answer of this request of the api, from 1."""
        behind = number - self.nth
        if behind < 0:
            return None
        if self.times is None or behind < self.times:
            return self.deed
        return self.then if behind == self.times else None

    def __str__(self) -> str:
        often = "for ever" if self.times is None else f"{self.times} times"
        then = "" if self.then is None else f", then {self.then}"
        return f"{self.key.name} from the {self.nth}. on, {often}: {self.deed}{then}"


def places(key: ApiKey, *, what: Literal["codes", "rows"]) -> list[Place]:
    """Where an answer has error codes, or rows, in a version that the client speaks."""
    versions = {SPOKEN[key].max, NEWEST.get(key, -1), BY_ID.get(key, -1)} - {-1}
    found: dict[Place, None] = {}
    for version in sorted(versions):
        found |= dict.fromkeys(_places(response_class(key), what, version, ()))
    return list(found)


def _places(kind: Any, what: str, version: int, path: Place) -> Iterator[Place]:  # noqa: ANN401
    for field in kind.fields():
        if not field.is_in(version):
            continue
        here = (*path, field.name)
        if what == "codes" and field.name.endswith("error_code") and field.name not in NO_FAILURE:
            yield here
        if field.struct is not None:
            if what == "rows" and field.is_array:
                yield here
            yield from _places(field.struct, what, version, here)


def _holders(message: Message, path: Place) -> Iterator[Message]:
    """The structs that have the field at the end of the path."""
    if len(path) == 1:
        yield message
        return
    value = getattr(message, path[0])
    for each in value if isinstance(value, list) else [value] if value is not None else []:
        yield from _holders(each, path[1:])


def apply(deed: Deed, message: Message) -> None:
    """Do it to an answer; what cannot be done there is not."""
    match deed:
        case Code(place, code, is_done):
            for holder in _holders(message, place):
                setattr(holder, place[-1], int(code))
                for field in type(holder).fields():
                    if not is_done and field.name in _BLANK:
                        setattr(holder, field.name, _BLANK[field.name])
                    if field.name == "error_message":
                        setattr(holder, field.name, SAID)
        case Emptied(place, is_null):
            for holder in _holders(message, place):
                setattr(holder, place[-1], None if is_null else [])
        case Missing(place):
            for holder in _holders(message, place):
                if rows := getattr(holder, place[-1]):
                    setattr(holder, place[-1], rows[:-1])
        case Throttled(ms):
            if "throttle_time_ms" in type(message).__slots__:
                message.throttle_time_ms = ms  # type: ignore[attr-defined]
        case Stranger():
            _replace(message, "topic_id", NOBODYS_ID)
        case Older(api):
            assert isinstance(message, ApiVersionsResponse)
            for row in message.api_keys:
                if row.api_key == api:
                    row.max_version = row.min_version
        case _:
            pass


def _replace(message: Message, name: str, value: object) -> None:
    for field in type(message).fields():
        if field.name == name:
            setattr(message, name, value)
        elif field.struct is not None:
            inner = getattr(message, field.name)
            for each in inner if field.is_array else [inner]:
                if each is not None:
                    _replace(each, name, value)
