"""Who reads what: the strategies with which the leader of a group deals partitions out.

    name                 how                                          a rebalance
    cooperative-sticky   balanced; everyone keeps what it can         nobody stops reading
    sticky               balanced; everyone keeps what it can         all give up all first
    roundrobin           all partitions in turn                       all give up all first
    range                per topic, neighbouring partitions together  all give up all first

The names and the bytes are those of Kafka's Java client and of librdkafka, so members of all three
can be in one group, and each can lead it.  Given the same members all give the same answer for
`range` and `roundrobin`; of the sticky ones only the rules are the same, not every choice.

`cooperative-sticky` hands a partition that moves from one member to another to nobody at first:
its owner learns that it has to give it up, joins again without it, and then it is dealt out.

With the others nobody has anything while partitions are dealt out, but for members that were
cooperative until a moment ago: what they say they still have goes to nobody else either, and they
join again without it.

Invariant: each partition of a subscribed topic goes to exactly one member that subscribed to it, or
to nobody while another member still has it.  Pure functions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from segbroker.protocol.consumer_protocol import (
    Subscription,
    decode_generation,
    decode_sticky,
    decode_subscription,
    encode_sticky,
    encode_subscription,
)

from .records import TopicPartition, grouped
from .sticky import Claimant, deal_out_sticky

COOPERATIVE: Final = "cooperative-sticky"


class GroupMemberInfo(NamedTuple):
    """A member as its leader sees it.

    `owned` and `generation` are what a sticky strategy goes by, `claims` what it still reads.
    """

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    claims: tuple[TopicPartition, ...] = ()


Members = Sequence[GroupMemberInfo]
Assignment = dict[str, list[TopicPartition]]


def is_cooperative(assignor: str) -> bool:
    """Whether members go on reading through a rebalance with this one."""
    return assignor == COOPERATIVE


def subscription_bytes(
    assignor: str,
    topics: Sequence[str],
    owned: Sequence[TopicPartition],
    generation: int,
    given: Sequence[TopicPartition],
) -> bytes:
    """What a member says of itself when it joins, to be read by this strategy.

    owned: what it reads; given: what it was given last, though it may have given it up since.
    """
    user_data = encode_sticky(given, generation) if assignor == "sticky" else None
    return encode_subscription(Subscription(tuple(topics), tuple(owned), generation, user_data))


def member_info(
    assignor: str, member_id: str, instance_id: str | None, metadata: bytes
) -> GroupMemberInfo:
    """What a member said of itself; who said nothing that can be read wants nothing."""
    said = decode_subscription(metadata)
    if said is None:
        return GroupMemberInfo(member_id, instance_id, ())
    owned, generation = list(said.owned), said.generation
    claims = tuple(TopicPartition(*pair) for pair in said.owned)
    if assignor == "sticky":
        owned, generation = decode_sticky(said.user_data)
    elif generation < 0:
        generation = decode_generation(said.user_data)
    return GroupMemberInfo(
        member_id,
        instance_id,
        said.topics,
        tuple(TopicPartition(*pair) for pair in owned),
        generation,
        claims,
    )


def deal_out(assignor: str, members: Members, counts: Mapping[str, int]) -> Assignment:
    """Each member's partitions; `counts` has how many partitions each topic has."""
    ordered = sorted(members, key=_order)
    return _without_claims(ASSIGNORS[assignor](ordered, counts), members)


def _without_claims(dealt: Assignment, members: Members) -> Assignment:
    """What another member still has goes to nobody yet."""
    owners: dict[TopicPartition, set[str]] = {}
    for member in members:
        for tp in member.claims:
            owners.setdefault(tp, set()).add(member.member_id)
    return {
        member_id: [tp for tp in partitions if owners.get(tp, {member_id}) == {member_id}]
        for member_id, partitions in dealt.items()
    }


def _order(member: GroupMemberInfo) -> tuple[bool, str]:
    """Static members first, by their own names: those survive a restart of the member."""
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.member_id


def _range(members: Members, counts: Mapping[str, int]) -> Assignment:
    dealt: Assignment = {member.member_id: [] for member in members}
    readers_of = grouped(
        (topic, member.member_id) for member in members for topic in dict.fromkeys(member.topics)
    )
    for topic, readers in sorted(readers_of.items()):
        each, more = divmod(counts.get(topic, 0), len(readers))
        start = 0
        for index, reader in enumerate(readers):
            stop = start + each + (index < more)
            dealt[reader] += [TopicPartition(topic, number) for number in range(start, stop)]
            start = stop
    return dealt


def _round_robin(members: Members, counts: Mapping[str, int]) -> Assignment:
    dealt: Assignment = {member.member_id: [] for member in members}
    wanted = [frozenset(member.topics) for member in members]
    turn = 0
    for topic in sorted(frozenset[str]().union(*wanted)):
        for number in range(counts.get(topic, 0)):
            while topic not in wanted[turn % len(members)]:
                turn += 1
            dealt[members[turn % len(members)].member_id].append(TopicPartition(topic, number))
            turn += 1
    return dealt


def _sticky(members: Members, counts: Mapping[str, int]) -> Assignment:
    return deal_out_sticky(
        [Claimant(m.member_id, frozenset(m.topics), m.owned, m.generation) for m in members], counts
    )


ASSIGNORS: dict[str, Callable[[Members, Mapping[str, int]], Assignment]] = {
    COOPERATIVE: _sticky,
    "range": _range,
    "roundrobin": _round_robin,
    "sticky": _sticky,
}
