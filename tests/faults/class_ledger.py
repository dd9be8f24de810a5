"""What clients know of one partition whose class of durability changes, and who judges it.

| an acknowledged record | is there, under its offset |
|---|---|
| in class `fsync`; in any, once a sync, a stop, or a change to `fsync` succeeded | always |
| in class `disk` | as well, from a tick on behind which nothing failed |
| else | until a power cut, or a failed sync and a kill: then a gap says so |
| in class `ephemeral` | until the process ends |

But where somebody deleted it, or a retention that was ever asked for.  No offset is given twice, no
gap is told where nothing can be lost, and nothing is there that was never sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from .committed_view import Seen


@dataclass
class Acknowledged:
    """A record."""

    value: bytes
    is_durable: bool
    """Whether nothing may take it any more."""
    may_be_gone: bool = False
    """Whether something happened since that may have taken it."""


@dataclass
class PartitionLedger:
    """One partition of one topic; another one of its name begins anew."""

    sent: set[bytes] = field(default_factory=set)
    acknowledged: dict[int, Acknowledged] = field(default_factory=dict)
    """By offset."""
    pending: dict[int, bytes] = field(default_factory=dict)
    """Appended, and not acknowledged yet."""
    gone: set[int] = field(default_factory=set)
    """Offsets that were acknowledged, and are lost."""
    gaps: set[tuple[int, int]] = field(default_factory=set)
    """That were told before."""
    is_silent: bool = False
    """Whether what may be gone need not be told, as nothing on the disk could say so; then its
    offset may be given again."""
    is_reserved: bool = False
    """Whether offsets may be reserved beyond the end: a power cut tells them as lost."""
    pauses: int = 0
    """Long ones since the last append, in a class that is synced by time."""
    deleted_to: int = 0
    """Below it records may be deleted: somebody has asked for that."""

    def appended(self, offset: int, value: bytes) -> Iterator[str]:
        """It has this offset now, if it comes to be acknowledged."""
        if offset in self.acknowledged or offset in self.gone:
            yield f"offset {offset} is given twice"
        self.pending[offset] = value

    def advanced(self, high_watermark: int, *, is_durable: bool) -> None:
        """What is below it is acknowledged."""
        for offset in [one for one in self.pending if one < high_watermark]:
            self.acknowledged[offset] = Acknowledged(self.pending.pop(offset), is_durable)

    def synced(self) -> None:
        """All that was acknowledged stays."""
        for one in self.acknowledged.values():
            one.is_durable = True

    def torn(self) -> None:
        """What was not synced may be gone."""
        for one in self.acknowledged.values():
            one.may_be_gone |= not one.is_durable

    def forgotten(self) -> None:
        """All of it is gone, and nobody says so in the log."""
        self.gone |= self.acknowledged.keys()
        self.acknowledged.clear()
        self.deleted_to = 1 << 62

    def judge(
        self,
        seen: Seen,
        start: int,
        high_watermark: int,
        safe_end: int,
        kept_min: int | None,
        *,
        is_writable: bool,
        may_gap: bool,
    ) -> Iterator[str]:
        """What is wrong in what was seen of a log with these offsets.

        safe_end: below it everything is acknowledged, or synced.  kept_min: the least number of
        records that a retention keeps; None: there was no retention.  is_writable: else what is not
        below the high watermark may come back yet.  may_gap: whether a gap may be told that was not
        told before.
        """
        if seen.problem:
            yield seen.problem
        rows = dict(seen.rows)
        if len(rows) < len(seen.rows) or len(set(rows.values())) < len(rows):
            yield "something is there twice"
        yield from (
            f"never sent: {value[:6]!r} at {at}"
            for at, value in rows.items()
            if value not in self.sent
        )
        if start > self.deleted_to and (kept_min is None or safe_end - start < kept_min):
            yield f"begins at {start}: deleted to {self.deleted_to}, {safe_end=}, {kept_min=}"
        if start > high_watermark:
            yield f"begins at {start}, and readers may see up to {high_watermark}"
        new = set(seen.gaps) - self.gaps
        if new and not may_gap:
            yield f"gaps where nothing was lost: {sorted(new)}"
        self.gaps |= new
        lost = []
        for at, one in sorted(self.acknowledged.items()):
            if at in rows:
                if rows[at] != one.value:
                    yield f"at {at} is {rows[at][:6]!r}, and was {one.value[:6]!r}"
            elif start <= at < seen.refused_from and (is_writable or at < high_watermark):
                if any(begin <= at < end for begin, end in self.gaps):
                    self.gone.add(at)
                    if not one.may_be_gone:
                        yield f"{one.value[:6]!r} at {at} is in a gap, and was to stay"
                elif not (self.is_silent and one.may_be_gone):
                    yield f"{one.value[:6]!r} at {at} is gone without a word: {high_watermark=}"
                lost.append(at)
        for at in lost:
            del self.acknowledged[at]
