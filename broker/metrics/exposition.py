"""Numbers as text: the Prometheus format, or OpenMetrics for who prefers it.

The text is made by prometheus_client, in a lane, from a registry of its own for each page: one
collector that has the numbers of this page, one of the process (prometheus_client's, which reads
/proc).  Nothing is global, and nothing is kept between two pages.

A thread that makes text for a tenth of a second keeps the interpreter to itself for 5 ms whenever
the loop wants it back.  So it gives the interpreter away every ROWS_AT_ONCE rows, by sleeping for
as short as it can.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from segbroker.segments.wal.sync_times import BOUNDS, Histogram

from .families import FAMILIES, Family
from .numbers import Numbers

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ROWS_AT_ONCE: Final = 64
AWAY_S: Final = 0.0001
_TOTAL: Final = "_total"
_INFO: Final = "_info"


def preferred(accept: str) -> str:
    """The content type that an Accept header prefers; the Prometheus format unless it says that it
    would rather have the other one."""
    weights = {PLAIN: 0.0, OPEN: 0.0}
    for item in accept.split(","):
        media, *parameters = (part.strip().lower() for part in item.split(";"))
        for form in weights:
            if media == form.partition(";")[0]:
                weights[form] = max(weights[form], _weight(parameters))
    return OPEN if weights[OPEN] > weights[PLAIN] else PLAIN


def _weight(parameters: Iterable[str]) -> float:
    for one in parameters:
        name, _, value = one.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


def render(numbers: Numbers, form: str) -> bytes:
    """The page, as PLAIN or OPEN.  In a lane."""
    registry = CollectorRegistry()
    registry.register(_OfNumbers(numbers))
    ProcessCollector(registry=registry)
    if form == PLAIN:
        return generate_latest(registry)
    text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
    return text


class _OfNumbers(Collector):
    """What a registry collects from."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: no other collector has names like these."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every family, also without a row, in the order of the table."""
        for name, family in FAMILIES.items():
            if (histogram := self._numbers.histograms.get(name)) is not None:
                yield _made(name, family, _of_histogram(name, histogram))
            else:
                rows = self._numbers.rows.get(name, ())
                yield _made(name, family, _of_rows(name, family, rows))


def _made(name: str, family: Family, samples: list[Sample]) -> Metric:
    # The library puts back what it knows by the kind.
    ending = {"counter": _TOTAL, "info": _INFO}.get(family.kind, "")
    metric = Metric(name.removesuffix(ending), family.help, family.kind)
    metric.samples = _Yielding(samples)
    return metric


class _Yielding(list[Sample]):
    """Samples; whoever goes through them gives the interpreter away now and then."""

    def __iter__(self) -> Iterator[Sample]:
        for number, sample in enumerate(super().__iter__(), start=1):
            if number % ROWS_AT_ONCE == 0:
                time.sleep(AWAY_S)
            yield sample


def _of_rows(
    name: str, family: Family, rows: Iterable[tuple[tuple[str, ...], float]]
) -> list[Sample]:
    labels = family.labels
    samples = []
    for number, (values, value) in enumerate(rows, start=1):
        samples.append(Sample(name, dict(zip(labels, values, strict=True)), value))
        if number % (ROWS_AT_ONCE * 4) == 0:  # as dear as a quarter of a line
            time.sleep(AWAY_S)
    return samples


def _of_histogram(name: str, histogram: Histogram) -> list[Sample]:
    """Prometheus counts in each bucket all that are below its bound."""
    samples, below = [], 0
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), histogram.counts, strict=True):
        below += count
        samples.append(Sample(f"{name}_bucket", {"le": bound}, below))
    samples.append(Sample(f"{name}_count", {}, below))
    samples.append(Sample(f"{name}_sum", {}, histogram.seconds))
    return samples
