"""Dealing partitions out: the rules that every strategy keeps, over groups made up at random."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segbroker.client.assignors import (
    ASSIGNORS,
    Assignment,
    GroupMemberInfo,
    deal_out,
    member_info,
    subscription_bytes,
)
from segbroker.client.records import TopicPartition
from segbroker.protocol.consumer_protocol import (
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)

from ..support.counted import CountedName

TOPICS = ("a", "b", "c")
NAMES = st.sampled_from(sorted(ASSIGNORS))
COUNTS = st.fixed_dictionaries(dict.fromkeys(TOPICS, st.integers(0, 9)))


@st.composite
def groups(
    draw: st.DrawFn, *, equal: bool = False, claiming: bool = False
) -> tuple[GroupMemberInfo, ...]:
    """Members, some of which claim what they had, truly or not."""
    size = draw(st.integers(1, 6))
    shared = draw(st.sets(st.sampled_from(TOPICS), min_size=1))
    members = []
    for index in range(size):
        topics = shared if equal else draw(st.sets(st.sampled_from(TOPICS)))
        claims = draw(
            st.sets(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 10)))
        )
        instance = draw(st.sampled_from([None, f"static-{size - index}"]))
        generation = draw(st.integers(-1, 2))
        had = tuple(sorted(claims))
        member = GroupMemberInfo(
            f"m{index}", instance, tuple(sorted(topics)), had, generation, had if claiming else ()
        )
        members.append(member)
    return tuple(members)


def all_partitions(
    members: tuple[GroupMemberInfo, ...], counts: dict[str, int]
) -> list[TopicPartition]:
    topics = {topic for member in members for topic in member.topics}
    return [TopicPartition(topic, n) for topic in sorted(topics) for n in range(counts[topic])]


def given_to_nobody_yet(members: tuple[GroupMemberInfo, ...], tp: TopicPartition) -> bool:
    return any(tp in member.claims for member in members)


@given(NAMES, groups() | groups(claiming=True), COUNTS)
@settings(max_examples=60)
def test_each_partition_goes_to_one_member_that_subscribed_to_its_topic(
    name: str, members: tuple[GroupMemberInfo, ...], counts: dict[str, int]
) -> None:
    dealt = deal_out(name, members, counts)
    assert dealt.keys() == {member.member_id for member in members}
    for member in members:
        assert all(tp.topic in member.topics for tp in dealt[member.member_id])
    times = Counter(tp for partitions in dealt.values() for tp in partitions)
    assert set(times.values()) <= {1}
    for tp in all_partitions(members, counts):
        if given_to_nobody_yet(members, tp):
            continue
        assert times[tp] == 1


@given(st.sampled_from(["roundrobin", "sticky"]), groups(equal=True), COUNTS)
@settings(max_examples=40)
def test_members_with_the_same_topics_differ_by_one_at_most(
    name: str, members: tuple[GroupMemberInfo, ...], counts: dict[str, int]
) -> None:
    sizes = [len(partitions) for partitions in deal_out(name, members, counts).values()]
    assert max(sizes) - min(sizes) <= 1


@given(groups(equal=True), COUNTS)
@settings(max_examples=40)
def test_the_range_of_a_topic_differs_by_one_at_most_and_is_of_neighbours(
    members: tuple[GroupMemberInfo, ...], counts: dict[str, int]
) -> None:
    dealt = deal_out("range", members, counts)
    for topic in members[0].topics:
        shares = [[tp.partition for tp in mine if tp.topic == topic] for mine in dealt.values()]
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert all(
            share == list(range(share[0], share[0] + len(share))) for share in shares if share
        )


@given(groups(), COUNTS)
@settings(max_examples=60)
def test_nobody_could_pass_a_partition_on_to_one_with_two_fewer(
    members: tuple[GroupMemberInfo, ...], counts: dict[str, int]
) -> None:
    dealt = deal_out("sticky", members, counts)
    wants = {member.member_id: set(member.topics) for member in members}
    for start, mine in dealt.items():
        reached, ahead = {start}, [start]
        while ahead:
            giver = ahead.pop()
            for topic in {tp.topic for tp in dealt[giver]}:
                for taker in wants:
                    if topic in wants[taker] and taker not in reached:
                        reached.add(taker)
                        ahead.append(taker)
        assert all(len(dealt[taker]) >= len(mine) - 1 for taker in reached)


def with_claims(dealt: Assignment, topics: tuple[str, ...]) -> tuple[GroupMemberInfo, ...]:
    return tuple(
        GroupMemberInfo(member_id, None, topics, tuple(mine), 1, tuple(mine))
        for member_id, mine in dealt.items()
    )


@given(st.integers(1, 8), COUNTS)
@settings(max_examples=40)
def test_what_is_balanced_stays_as_it_is(size: int, counts: dict[str, int]) -> None:
    empty = tuple(GroupMemberInfo(f"m{n}", None, TOPICS) for n in range(size))
    before = deal_out("sticky", empty, counts)
    for name in ("sticky", "cooperative-sticky"):
        assert deal_out(name, with_claims(before, TOPICS), counts) == before


@given(st.integers(1, 8), COUNTS)
@settings(max_examples=40)
def test_a_member_that_comes_costs_the_others_no_more_than_its_share(
    size: int, counts: dict[str, int]
) -> None:
    empty = tuple(GroupMemberInfo(f"m{n}", None, TOPICS) for n in range(size))
    before = deal_out("sticky", empty, counts)
    members = [member._replace(claims=()) for member in with_claims(before, TOPICS)]
    after = deal_out("sticky", [*members, GroupMemberInfo("new", None, TOPICS)], counts)
    moved = sum(len(set(mine) - set(after[member_id])) for member_id, mine in before.items())
    assert moved == len(after["new"])


@given(groups(equal=True), COUNTS)
@settings(max_examples=40)
def test_cooperative_members_are_balanced_after_a_few_rounds(
    members: tuple[GroupMemberInfo, ...], counts: dict[str, int]
) -> None:
    """Each joins again with what it was left; nobody has what another one still has."""
    topics = members[0].topics
    wanted = all_partitions(members, counts)
    owned = {member.member_id: set(member.owned) for member in members}
    for generation in range(3):
        dealt = deal_out(
            "cooperative-sticky",
            [
                GroupMemberInfo(member_id, None, topics, tuple(mine), generation, tuple(mine))
                for member_id, mine in owned.items()
            ],
            counts,
        )
        owned = {member_id: set(mine) for member_id, mine in dealt.items()}
    sizes = [len(mine) for mine in owned.values()]
    assert sum(sizes) == len(wanted)
    assert max(sizes) - min(sizes) <= 1


def test_what_moves_goes_to_nobody_until_its_owner_has_given_it_up() -> None:
    both = (TopicPartition("t", 0), TopicPartition("t", 1))
    owner = GroupMemberInfo("a", None, ("t",), both, 4, both)
    new = GroupMemberInfo("b", None, ("t",))
    first = deal_out("cooperative-sticky", [owner, new], {"t": 2})
    assert first == {"a": [("t", 0)], "b": []}
    left = owner._replace(owned=both[:1], claims=both[:1])
    assert deal_out("cooperative-sticky", [left, new], {"t": 2}) == {
        "a": [("t", 0)],
        "b": [("t", 1)],
    }


def test_of_two_that_claim_a_partition_the_later_generation_keeps_it() -> None:
    zombie = GroupMemberInfo("a", None, ("t",), (TopicPartition("t", 0),), 3)
    owner = GroupMemberInfo("b", None, ("t",), (TopicPartition("t", 0),), 4)
    assert deal_out("sticky", [zombie, owner], {"t": 1}) == {"a": [], "b": [("t", 0)]}


# What Kafka's own strategies answer (its documentation of both has these two as examples).
def test_range_and_roundrobin_are_kafkas() -> None:
    members = [GroupMemberInfo(f"C{n}", None, ("t0", "t1")) for n in range(2)]
    counts = {"t0": 3, "t1": 3}
    assert deal_out("range", members, counts) == {
        "C0": [("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)],
        "C1": [("t0", 2), ("t1", 2)],
    }
    assert deal_out("roundrobin", members, counts) == {
        "C0": [("t0", 0), ("t0", 2), ("t1", 1)],
        "C1": [("t0", 1), ("t1", 0), ("t1", 2)],
    }


# version 3 | topics [a] | user data null | owned [a: [7]] | generation 5 | rack null
SUBSCRIPTION = bytes.fromhex(
    "0003 00000001 0001 61 ffffffff 00000001 0001 61 00000001 00000007 00000005 ffff"
)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_dealing_out_many_topics_does_not_compare_each_with_all_others(name: str) -> None:
    CountedName.compared = 0
    members = [
        GroupMemberInfo(f"m{m}", None, tuple(CountedName(n) for n in range(400))) for m in range(5)
    ]
    dealt = deal_out(name, members, {str(n): 1 for n in range(400)})
    assert sum(map(len, dealt.values())) == 400
    assert CountedName.compared < 20 * 400 * 5


def test_a_subscription_has_the_bytes_that_java_writes() -> None:
    said = Subscription(("a",), (("a", 7),), 5)
    assert encode_subscription(said) == SUBSCRIPTION
    assert decode_subscription(SUBSCRIPTION) == said
    assert subscribed_topics(SUBSCRIPTION) == frozenset({"a"})
    assert encode_assignment([("a", 1), ("a", 0)]) == bytes.fromhex(
        "0000 00000001 0001 61 00000002 00000000 00000001 ffffffff"
    )


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_a_member_is_seen_as_it_described_itself(name: str) -> None:
    had = [TopicPartition("a", 7)]
    seen = member_info(name, "m", "s", subscription_bytes(name, ["a", "b"], had, 5, had))
    assert seen == GroupMemberInfo("m", "s", ("a", "b"), tuple(had), 5, tuple(had))


def test_older_ways_of_saying_the_generation_are_understood() -> None:
    # version 1, user data: generation 9; librdkafka's and Java's before 3.5
    older = bytes.fromhex("0001 00000001 0001 61 00000004 00000009 00000000")
    assert member_info("cooperative-sticky", "m", None, older).generation == 9
    # sticky, version 0 of its user data: no generation
    sticky = bytes.fromhex("0000 00000001 0001 61 00000011 00000001 0001 61 00000001 00000003 0000")
    assert member_info("sticky", "m", None, sticky[:-2]).owned == ()
    whole = bytes.fromhex("0000 00000001 0001 61 0000000f 00000001 0001 61 00000001 00000003")
    assert member_info("sticky", "m", None, whole) == GroupMemberInfo(
        "m", None, ("a",), (TopicPartition("a", 3),), -1
    )


@given(st.binary(max_size=60))
@settings(max_examples=40)
def test_bytes_of_something_else_are_a_member_that_wants_nothing_or_are_read(data: bytes) -> None:
    for name in ASSIGNORS:
        member_info(name, "m", None, data)
    for cut in range(len(SUBSCRIPTION)):
        member_info("range", "m", None, SUBSCRIPTION[:cut] + data)
