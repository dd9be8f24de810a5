"""The members of one classic group: who they are, by member id and by instance id.

    given      ids that were handed out to be joined with (KIP-394), and until when each may be
    by_id      who has a place
    by_instance    the member id that a static member (KIP-345) has at present
    offers     how many bring each protocol: thousands join one after the other, and each has to
               have one that all others have

Invariants: each instance id points to a member that is there; an id is given or has a place,
never both; `offers` is of the protocols of `by_id`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from uuid import uuid4

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.generations import KeptMember

from .group_news import Who

_PREFIX_SIZE_MAX: Final = 1_000
"""Bytes of a client id or an instance id that a member id begins with."""


class Joined(NamedTuple):
    """The answer to a join."""

    code: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """(member id, instance id, metadata) of everybody: for the leader alone."""
    skip_assignment: bool = False


class Synced(NamedTuple):
    """The answer to a sync."""

    code: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


OnJoined: TypeAlias = Callable[[Joined], None]
OnSynced: TypeAlias = Callable[[Synced], None]


class Joining(NamedTuple):
    """What a member says of itself when it joins.  Times are in ms."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Mapping[str, bytes]
    wants_id_first: bool
    knows_skip: bool
    reason: str = ""
    """Why it joins, in its own words."""


@dataclass(slots=True, eq=False)
class Member:
    """One member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Mapping[str, bytes]
    session_ends_ms: int = 0
    heard_ms: int = 0
    assignment: bytes = b""
    held: bytes = b""
    """The assignment that it was told last, or may ask for."""
    on_joined: OnJoined | None = None
    on_synced: OnSynced | None = None

    @property
    def who(self) -> Who:
        """As it is told of."""
        return Who(self.member_id, self.instance_id, self.client_id, self.client_host)

    @property
    def is_waiting(self) -> bool:
        """Whether a request of it waits here: then it is alive."""
        return self.on_joined is not None or self.on_synced is not None

    def kept(self) -> KeptMember:
        """As it is recorded."""
        return KeptMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            self.assignment,
        )

    def answer(self, code: ErrorCode) -> None:
        """End whatever waits with `code`."""
        on_joined, self.on_joined = self.on_joined, None
        on_synced, self.on_synced = self.on_synced, None
        if on_joined is not None:
            on_joined(Joined(code, self.member_id))
        if on_synced is not None:
            on_synced(Synced(code))


@dataclass(slots=True, eq=False)
class Members:
    """Everybody in one group, and who was told an id."""

    by_id: dict[str, Member] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)
    by_instance: dict[str, str] = field(default_factory=dict)
    offers: Counter[str] = field(default_factory=Counter)

    def is_fenced(self, member_id: str, instance_id: str | None) -> bool:
        """Whether the place of this static member belongs to another member id by now."""
        return instance_id is not None and self.by_instance.get(instance_id, member_id) != member_id

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """What is wrong with somebody who says to be this member."""
        if self.is_fenced(member_id, instance_id):
            return ErrorCode.FENCED_INSTANCE_ID
        member = self.by_id.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def has_common(self, joining: Joining) -> bool:
        """Whether a protocol of who joins is one of everybody but itself, whom its instance id may
        name."""
        ids = {joining.member_id}
        if joining.instance_id is not None:
            ids.add(self.by_instance.get(joining.instance_id, ""))
        mine = [member for one in ids if (member := self.by_id.get(one)) is not None]
        others = len(self.by_id) - len(mine)
        return any(
            self.offers[name] - sum(name in member.protocols for member in mine) == others
            for name in joining.protocols
        )

    def add(self, member_id: str, joining: Joining) -> Member:
        """Give a place; one that its instance had before is gone."""
        member = Member(
            member_id,
            joining.instance_id,
            joining.client_id,
            joining.client_host,
            joining.session_timeout_ms,
            joining.rebalance_timeout_ms,
            joining.protocols,
        )
        return self._put(member)

    def restore(self, kept: KeptMember) -> Member:
        """Give the place back that was recorded."""
        member = Member(
            kept.member_id,
            kept.instance_id,
            kept.client_id,
            kept.client_host,
            kept.session_timeout_ms,
            kept.rebalance_timeout_ms,
            kept.protocols,
            assignment=kept.assignment,
            held=kept.assignment,
        )
        return self._put(member)

    def _put(self, member: Member) -> Member:
        self.by_id[member.member_id] = member
        self.offers.update(member.protocols.keys())
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = member.member_id
        return member

    def says(self, member: Member, protocols: Mapping[str, bytes]) -> None:
        """A member brings these from now on."""
        self._withdraw(member)
        member.protocols = protocols
        self.offers.update(protocols.keys())

    def _withdraw(self, member: Member) -> None:
        self.offers.subtract(member.protocols.keys())
        for name in member.protocols:
            if not self.offers[name]:
                del self.offers[name]

    def vacate(self, instance_id: str) -> Member:
        """The place of a static member is free for who comes back; who had it."""
        member = self.by_id.pop(self.by_instance[instance_id])
        self._withdraw(member)
        return member

    def remove(self, member: Member) -> None:
        """Take a place away; what waits for it is told that it is unknown."""
        del self.by_id[member.member_id]
        self._withdraw(member)
        if member.instance_id is not None:
            del self.by_instance[member.instance_id]
        member.answer(ErrorCode.UNKNOWN_MEMBER_ID)

    def rebalance_ms(self) -> int:
        """How long the slowest may take to join again."""
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)


def new_member_id(prefix: str) -> str:
    """An id that begins like who asks for it, as far as it fits into every answer that names it."""
    begins = prefix.encode()[:_PREFIX_SIZE_MAX].decode(errors="ignore")
    return f"{begins}-{uuid4()}"
