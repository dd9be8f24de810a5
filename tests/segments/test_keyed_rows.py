"""One rule or quota more is not a look at all of them, and the snapshot has the rows as ever."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from segbroker.segments.metadata import acls, quotas
from segbroker.segments.metadata.acls import Acl
from segbroker.segments.metadata.control import Event, apply_all
from segbroker.segments.metadata.metadata import Metadata, decode_metadata

COUNT = 1_000


def rule(name: str) -> list[object]:
    return [2, name, 3, "User:u", "*", 3, 3]


def entity(name: str, rate: float | None) -> dict[str, Any]:
    values = {} if rate is None else {"producer_byte_rate": rate}
    return {"entity": [["user", name]], "values": values}


def names_of(content: acls.Content) -> list[str]:
    return [acl.resource_name for acl in acls.acls_of(content)]


def after(events: Iterable[tuple[str, dict[str, Any]]]) -> Metadata:
    numbered = [Event(number, *event) for number, event in enumerate(events, 1)]
    return apply_all(Metadata("cluster"), numbered)


def test_one_rule_more_or_less_makes_the_hash_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    many = acls.created(None, {"rows": [rule(f"t-{n}") for n in range(COUNT)]})

    def counted(self: Acl) -> int:
        hashed.append(self.resource_name)
        return tuple.__hash__(self)

    monkeypatch.setattr(Acl, "__hash__", counted)
    more = acls.created(many, {"rows": [rule("more"), rule("t-3")]})
    less = acls.deleted(more, {"rows": [rule("t-5"), rule("none")]})
    assert set(hashed) == {"more", "t-3", "t-5", "none"}
    monkeypatch.undo()
    before = [f"t-{n}" for n in range(COUNT)]
    assert names_of(many) == before
    assert names_of(more) == [*before, "more"]
    assert names_of(less) == [name for name in [*before, "more"] if name != "t-5"]


def test_one_quota_more_or_less_spells_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    spelled: list[str | None] = []
    many = quotas.changed(None, [entity(f"u-{n}", 1.0) for n in range(COUNT)])
    spell = quotas._spelled

    def counted(row: Sequence[Any]) -> tuple[str | None, ...]:
        spelled.append(spell(row)[1])
        return spell(row)

    monkeypatch.setattr(quotas, "_spelled", counted)
    changed = quotas.changed(many, [entity("more", 2.0), entity("u-3", 3.0), entity("u-5", None)])
    assert spelled == ["more", "u-3", "u-5"]
    has = {
        of[0][1]: values["producer_byte_rate"] for of, values in quotas.quotas_of(changed).items()
    }
    assert (has["more"], has["u-3"]) == (2.0, 3.0)
    assert "u-5" not in has
    assert len(has) == COUNT == len(quotas.quotas_of(many))


def test_a_snapshot_has_the_rows_and_goes_on_from_them() -> None:
    made = after(
        [
            (acls.CREATED, {"rows": [rule("a"), rule("b")]}),
            (acls.DELETED, {"rows": [rule("a")]}),
            (quotas.SET, entity("u", 1.0)),
        ]
    )
    found = decode_metadata(bytes(made.encode()), "snapshot")
    assert found.sections == {
        "acls": {"rows": [rule("b")]},
        "quotas": {"rows": [[[["user", "u"]], {"producer_byte_rate": 1.0}]]},
    }
    again = [
        Event(9, acls.CREATED, {"rows": [rule("c")]}),
        Event(10, quotas.SET, entity("u", None)),
    ]
    further = apply_all(found, again)
    assert names_of(further.sections["acls"]) == ["b", "c"]
    assert quotas.quotas_of(further.sections["quotas"]) == {}
