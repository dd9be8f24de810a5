"""The immutable map by name: a changed copy is as a dict would be, and what was there stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segbroker.segments.metadata.name_map import NameMap, plain

NAMES = st.sampled_from([f"group-{number}" for number in range(8)] + ["", "ü", "x" * 300])
CHANGES = st.lists(st.tuples(NAMES, st.none() | st.integers()))


@given(st.lists(CHANGES, max_size=5))
def test_it_is_as_a_dict_after_any_changes_and_what_was_there_stays(
    rounds: list[list[tuple[str, int | None]]],
) -> None:
    expected: dict[str, int] = {}
    content: NameMap[int] = NameMap()
    for changes in rounds:
        before, was = content, dict(expected)
        draft = content.draft()
        for name, value in changes:
            if value is None:
                assert draft.pop(name, None) == expected.pop(name, None)
            else:
                draft[name] = expected[name] = value
            assert len(draft) == len(expected)
        content = draft.done()
        assert content == expected == plain(content)
        assert len(content) == len(expected)
        assert sorted(content) == sorted(expected)
        assert before == was


def test_a_dict_is_taken_as_it_is_stored_and_a_map_as_itself() -> None:
    stored = {"a": 1, "b": 2}
    content = NameMap.of(stored)
    assert content == stored
    assert NameMap.of(content) is content
    assert NameMap.of(None) == {}
    assert plain([1]) == [1]


def test_what_is_not_there_is_not_there() -> None:
    content = NameMap.of({"a": 1})
    with pytest.raises(KeyError):
        content["b"]
    with pytest.raises(KeyError):
        del content.draft()["b"]
    assert "b" not in content
    assert content.get("b") is None


def test_a_change_leaves_almost_all_buckets_as_they_are() -> None:
    content = NameMap.of({str(number): number for number in range(10_000)})
    draft = content.draft()
    draft["7"] = -7
    after = draft.done()
    same = sum(a is b for a, b in zip(content._buckets, after._buckets, strict=True))
    assert same == len(content._buckets) - 1
