"""Small state files: an XXH3-64 checksum of the rest, then a msgpack map.

*.producers           producer state of a partition
snapshot-<n>.msgpack  topics and numbers of the whole broker
"""

from uuid import UUID

from segbroker.protocol.checksums import xxh3_64
from segbroker.protocol.errors import ProtocolError
from segbroker.protocol.vendor import unpack

from .dump_report import Report, Row

DIGEST_SIZE = 8
KINDS = {".producers": "producer state", ".msgpack": "metadata snapshot"}


def dump_state(content: bytes, suffix: str) -> Report:
    """What a state file holds.

    Args:
        suffix: of its name; one of KINDS.
    """
    report = Report(KINDS[suffix], {"size": len(content)})
    digest, body = int.from_bytes(content[:DIGEST_SIZE], "big"), content[DIGEST_SIZE:]
    if len(content) < DIGEST_SIZE or xxh3_64(body) != digest:
        report.damage.append(f"the checksum is wrong: {digest:016x} in the file")
        return report
    try:
        state = unpack(body, size_max=len(body))
    except ProtocolError as exc:
        report.damage.append(f"the checksum is right, but it is not a map of ours: {exc}")
        return report
    topics, producers = state.pop("topics", {}), state.pop("producers", {})
    report.facts |= {"version": state.pop("v", None), **state}
    report.rows.extend(_topic(name, topic) for name, topic in sorted(topics.items()))
    report.rows.extend(_producer(number, entry) for number, entry in producers.items())
    return report


def _topic(name: str, topic: Row) -> Row:
    return {"topic": name, **topic, "id": str(UUID(bytes=topic["id"]))}


def _producer(number: int, entry: list[object]) -> Row:
    epoch, last_ms, batches = entry
    # [first_sequence, last_sequence, base_offset, last_offset] each
    shown = [f"{a}-{b} at {c}-{d}" for a, b, c, d in batches]  # type: ignore[attr-defined]
    return {"producer_id": number, "epoch": epoch, "last_ms": last_ms, "batches": shown}
