"""How far a streaming query is, while it runs: one Progress per finished micro-batch.

Spark keeps the progress of the last batches; who asks often enough misses none.  Asking, not a
listener: a listener needs a second connection back from the JVM, and a thread.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ASK_INTERVAL_S = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """One finished micro-batch; `behind` None: the source does not say how far it goes."""

    batch: int
    rows: int
    seconds: float
    behind: int | None


Tell = Callable[[Progress], object]


def run(query: "StreamingQuery", tell: Tell) -> int:
    """Wait for the end of the query, telling each batch that had rows.  Returns the rows in all.

    Raises what ended the query.  An interrupt stops it first: its batch is done again next time.
    """
    told, total = -1, 0
    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(ASK_INTERVAL_S))
            for each in query.recentProgress:
                parsed: dict[str, Any] = json.loads(each.json)
                rows = max(0, parsed["numInputRows"])
                # A batch that Spark waits for it reports as well, without rows.
                if rows and parsed["batchId"] > told:
                    told = parsed["batchId"]
                    total += rows
                    tell(_progress(parsed, rows))
    except BaseException:
        query.stop()
        raise
    return total


def _progress(parsed: Mapping[str, Any], rows: int) -> Progress:
    seconds = parsed.get("durationMs", {}).get("triggerExecution", 0) / 1000
    return Progress(parsed["batchId"], rows, seconds, _behind(parsed["sources"]))


def _behind(sources: list[Mapping[str, Any]]) -> int | None:
    """Offsets between where the batch ended and where the logs end."""
    total = 0
    for source in sources:
        end, latest = _offsets(source["endOffset"]), _offsets(source.get("latestOffset"))
        if not end or not latest:
            return None
        total += sum(max(0, at - end.get(key, 0)) for key, at in latest.items())
    return total


def _offsets(value: object) -> dict[tuple[str, str], int]:
    parsed = json.loads(value) if isinstance(value, str) else value
    if not isinstance(parsed, dict):
        return {}
    return {
        (topic, partition): offset
        for topic, row in parsed.items()
        if isinstance(row, dict) and not topic.startswith("$")
        for partition, offset in row.items()
    }
