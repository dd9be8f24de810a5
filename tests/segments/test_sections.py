"""Rows that a later version has made longer end a start, before anything is done."""

import copy
from typing import Any

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import Storage, read_file, write_all
from segbroker.segments.errors import StorageError, UnsupportedFormat
from segbroker.segments.metadata import transactions
from segbroker.segments.metadata.control import Event, apply_all
from segbroker.segments.metadata.metadata import Metadata, decode_metadata
from segbroker.segments.metadata.name_map import plain

ID = bytes(15) + b"\1"
FIELDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("acls_created", {"rows": [[2, "t", 3, "User:a", "*", 3, 3]]}),
    ("offsets_committed", {"group": "g", "at": 5, "rows": [["t", ID, 0, 7, -1, ""]]}),
    (
        "offsets_committed",
        {"group": "h", "at": 5, "expire": 9, "after": 2, "rows": [["t", ID, 0, 7, -1, ""]]},
    ),
    ("group_emptied", {"group": "g", "at": 5}),
    (
        "generation",
        {
            "group": "c",
            "generation": 3,
            "protocol_type": "consumer",
            "protocol": "range",
            "leader": "m",
            "members": [["m", None, "c", "h", 1, 2, {"range": b"t"}, b"all"]],
        },
    ),
    (
        "consumer_group",
        {
            "group": "k",
            "epoch": 2,
            "assignment_epoch": 2,
            "assignor": "uniform",
            "whole": True,
            "says": {"m": [None, None, "c", "h", 1, ["t"], "", "User:a", None]},
            "has": {"m": [2, 1, "stable", [[ID, [0]]], [[ID, [1]]], [[ID, [2]]]]},
            "classic": {"m": [1, {"range": b"t"}]},
        },
    ),
    (
        "streams_group",
        {
            "group": "a",
            "epoch": 2,
            "assignment_epoch": 2,
            "topology": [0, [["0", ["t"], [], [], [["log", 0, 1, []]], []]]],
            "whole": True,
            "members": {
                "m": [
                    ["c", "h", None, 1, 0, "p", None, []],
                    *(2, 1, "stable", [[["0", [0]]], []], [[], []], [[["0", [0]]], []], [2]),
                ]
            },
        },
    ),
    (
        "topic_created",
        {"name": "t", "id": ID, "partitions": 1, "epoch": 0, "config": {}},
    ),
    ("share_states", {"group": "s", "rows": [["t", ID, 0, 5, [[7, 9, 2, 1]]]]}),
    ("quotas_set", {"entity": [["user", "a"]], "values": {"producer_byte_rate": 1.0}}),
    ("broker_settings_set", {"resource": "1", "values": {"a": "b"}}),
    ("group_settings_set", {"resource": "g", "values": {"a": "b"}}),
    ("user_set", {"name": "u", "rows": [[1, 4096, b"salt", b"stored", b"server"]]}),
    (
        "transaction",
        {
            "id": "x",
            "row": [
                *(1, 0, -1, -1, 9, 1, 5, 5),
                *({"t": [0]}, {"g": [["t", ID, 0, 7, -1, "", 3]]}, [1, 0], 1),
            ],
        },
    ),
    ("transactions_decided", {"at": 5, "commit": True, "rows": [], "query": ["q", 4]}),
)
BUCKET = next(
    iter(transactions.changed(None, {"id": "x", "row": []})["ids"])
)  # where the snapshot has "x"
ROWS: tuple[tuple[object, ...], ...] = (
    ("acls", "rows", 0),
    ("groups", "g", "t"),
    ("groups", "h", "t", 1, "0"),
    ("generations", "c", "members", 0),
    ("consumer_groups", "k", "says", "m"),
    ("consumer_groups", "k", "has", "m"),
    ("consumer_groups", "k", "has", "m", 3, 0),
    ("consumer_groups", "k", "has", "m", 4, 0),
    ("consumer_groups", "k", "has", "m", 5, 0),
    ("consumer_groups", "k", "classic", "m"),
    ("quotas", "rows", 0),
    ("quotas", "rows", 0, 0, 0),
    ("share_groups", "s", "t"),
    ("streams_groups", "a", "topology"),
    ("streams_groups", "a", "topology", 1, 0),
    ("streams_groups", "a", "members", "m"),
    ("streams_groups", "a", "members", "m", 0),
    ("streams_groups", "a", "members", "m", 4),
    ("share_groups", "s", "t", 1, "0"),
    ("share_groups", "s", "t", 1, "0", 1, 0),
    ("users", "users", "u", "1"),
    ("transactions", "ids", BUCKET, "x"),
    ("transactions", "ids", BUCKET, "x", 9, "g", 0),
    ("transactions", "ids", BUCKET, "x", 10),
    ("transactions", "queries", "q"),
)


def full() -> dict[str, Any]:
    """Every section, as a snapshot has it."""
    events = [Event(seq, kind, fields) for seq, (kind, fields) in enumerate(FIELDS, 1)]
    state = apply_all(Metadata("cluster"), events)
    sections = decode_metadata(state.encode(), "snapshot").sections
    found = copy.deepcopy({name: plain(content) for name, content in sections.items()})
    return found


def begun() -> tuple[MemoryStorage, Metadata]:
    """A disk that a broker has used, and what its snapshot says."""
    disk = MemoryStorage()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    manager.close()
    return disk, decode_metadata(bytes(read_file(disk, snapshot_on(disk))), "snapshot")


def snapshot_on(disk: Storage) -> str:
    (name,) = disk.listdir("/data/meta")
    return f"/data/meta/{name}"


def with_sections(sections: dict[str, Any]) -> MemoryStorage:
    disk, known = begun()
    content = Metadata(known.cluster_id, seq=known.seq, sections=sections).encode()
    file = disk.open(snapshot_on(disk))
    file.truncate(0)
    write_all(file, content, 0)
    return disk


def files_on(disk: Storage, folder: str = "/data") -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in disk.listdir(folder):
        path = f"{folder}/{name}"
        try:
            found[path] = bytes(read_file(disk, path))
        except IsADirectoryError:
            found[path] = None
            found |= files_on(disk, path)
    return found


def test_rows_of_this_version_are_read() -> None:
    sections = full()
    disk = with_sections(sections)
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    assert {name: manager.section(name) for name in sections} == sections
    manager.close()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row)))
def test_a_longer_row_of_a_section_is_of_a_later_version_and_nothing_is_changed(
    row: tuple[object, ...],
) -> None:
    sections = full()
    found: Any = sections
    for step in row:
        found = found[step]
    found.append("new")
    disk = with_sections(sections)
    before = files_on(disk)
    manager = DiskManager("/data", storage=disk, flushers=0)
    wanted = rf"{len(found)} fields in section '{row[0]}'.*, this version reads '.* fields'"
    with pytest.raises(UnsupportedFormat, match=wanted):
        manager.open()
    assert files_on(disk) == before


@pytest.mark.parametrize(
    ("section", "content"),
    [
        ("emptied", {"g": [5, "new"]}),
        ("broker_settings", {"rows": {"1": [["a", "b"]]}}),
        ("group_settings", {"rows": {"g": [["a", "b"]]}}),
        ("acls", [[2, "t", 3, "User:a", "*", 3, 3]]),
        ("groups", {"g": {"t": {"id": ID}}}),
        ("generations", {"c": {"generation": 3}}),
    ],
)
def test_a_section_of_another_shape_is_of_a_later_version(section: str, content: object) -> None:
    disk = with_sections({section: content})
    before = files_on(disk)
    manager = DiskManager("/data", storage=disk, flushers=0)
    with pytest.raises(UnsupportedFormat, match=f"section '{section}'"):
        manager.open()
    assert files_on(disk) == before


def test_a_longer_row_of_an_event_behind_the_snapshot_is_none_either() -> None:
    disk = MemoryStorage()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    row = ["t", ID, 0, 7, -1, "", "new"]
    manager.record_now("offsets_committed", group="g", at=5, expire=9, after=2, rows=[row])
    disk = disk.after_kill()
    before = files_on(disk)
    with pytest.raises(StorageError, match="7 fields in section 'groups'"):
        DiskManager("/data", storage=disk, flushers=0).open()
    assert files_on(disk) == before
