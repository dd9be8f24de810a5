"""The numbers of one page, as they are gathered: rows by family.

Rows are plain tuples of label values and a number; text is made of them elsewhere, off the loop
(exposition.py).
"""

from segbroker.segments.wal.sync_times import Histogram

from .families import FAMILIES


class Numbers:
    """Those of one page."""

    __slots__ = ("histograms", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[tuple[str, ...], float]]] = {}
        self.histograms: dict[str, Histogram] = {}

    def add(self, name: str, value: float, *labels: str) -> None:
        """One row of a family; the values of its labels in their order."""
        family = FAMILIES[name]
        assert len(labels) == len(family.labels), f"{name} has other labels"
        self.rows.setdefault(name, []).append((labels, value))

    def add_histogram(self, name: str, histogram: Histogram) -> None:
        """The one row of a family that is a histogram."""
        assert FAMILIES[name].kind == "histogram", f"{name} is none"
        self.histograms[name] = histogram
