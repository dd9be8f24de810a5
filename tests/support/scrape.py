"""The metrics page as Prometheus sees it: fetched over HTTP, read by prometheus_client's parser."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

Rows: TypeAlias = Mapping[tuple[str, frozenset[tuple[str, str]]], float]

TIMEOUT_S = 60
# prometheus_client's own, of the process.
FOREIGN = {
    "process_virtual_memory_bytes", "process_resident_memory_bytes", "process_start_time_seconds",
    "process_cpu_seconds_total", "process_open_fds", "process_max_fds",
}  # fmt: skip


class Scraped:
    """One page: its families, and its rows by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families: dict[str, str] = {}
        rows: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            ending = "_total" if family.type == "counter" else ""
            self.families[family.name + ending] = family.type
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in rows, f"{key} is there twice"
                rows[key] = sample.value
        self.rows: Rows = rows

    def value(self, name: str, **labels: str) -> float:
        """The one row with exactly these labels."""
        return self.rows[name, frozenset(labels.items())]

    def of(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Rows that have these labels, by the value of another."""
        found: dict[str, float] = {}
        for (row, pairs), value in self.rows.items():
            told = dict(pairs)
            if row == name and labels.items() <= told.items():
                found[told[label]] = value
        return found


def get(address: str, path: str, **headers: str) -> tuple[int, str, str]:
    """(status, content type, text) of a page."""
    asked = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.headers["Content-Type"], exc.read().decode()


def scrape(address: str) -> Scraped:
    """The metrics page at HOST:PORT."""
    status, _, text = get(address, "/metrics")
    assert status == 200, text
    return Scraped(text)
