"""What an upgrade lost is noticed, whatever it is; what may change is not taken for it."""

from copy import deepcopy

from .upgrade_seen import Record, Seen, lost

ONE: Record = (0, b"k", b"one", (1, 5), ())
TWO: Record = (1, b"k", b"two", (1, 6), (("h", b"x"),))


def seen(topic: str = "fsync") -> Seen:
    return Seen(
        records={(topic, 0): [ONE, TWO]},
        bounds={(topic, 0): (0, 2)},
        configs={topic: {"durability": "fsync"}},
        offsets={"g": {(topic, 0): (1, "m")}},
        users={"alice": [("SCRAM_SHA_256", 4096)]},
        rules=["one"],
    )


def test_the_same_is_no_loss() -> None:
    assert lost(seen(), seen()) == []


def test_a_record_that_is_gone_or_another_one_is_told() -> None:
    for changed in ([ONE], [TWO], [ONE, (1, b"k", b"two", (1, 6), ())], [ONE, TWO, TWO]):
        after = seen()
        after.records["fsync", 0] = changed
        assert len(lost(seen(), after)) == 1


def test_bounds_settings_offsets_users_and_rules_are_told() -> None:
    for name in ("bounds", "configs", "offsets", "users", "rules"):
        after = deepcopy(seen())
        getattr(after, name).clear()
        if name == "bounds":
            after.bounds["fsync", 0] = (1, 2)
        assert len(lost(seen(), after)) == 1, name


def test_of_a_compacted_topic_the_last_values_count() -> None:
    after = seen("compacted")
    after.records["compacted", 0] = [TWO]
    assert lost(seen("compacted"), after) == []
    after.records["compacted", 0] = [ONE]
    assert len(lost(seen("compacted"), after)) == 1


def test_an_ephemeral_topic_may_be_empty_and_gives_no_offset_away_again() -> None:
    after = seen("ephemeral")
    after.records["ephemeral", 0], after.bounds["ephemeral", 0] = [], (2, 2)
    assert lost(seen("ephemeral"), after) == []
    after.bounds["ephemeral", 0] = (0, 0)
    assert len(lost(seen("ephemeral"), after)) == 1
