"""docs/log-events.md has every event that the code logs as a warning or an error, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = "\n".join(
    path.read_text() for room in ("broker", "segments") for path in (ROOT / room).rglob("*.py")
)
PAGE = (ROOT / "docs" / "log-events.md").read_text()


def test_every_event_of_the_code_is_on_the_page() -> None:
    logged = re.findall(r'\blog(?:ger)?\.(?:warning|error|exception)\(\s*"(\w+)"', CODE)
    handed_over = re.findall(r'\b(?:logged|refused|close_because|_told)\(\s*"(\w+)"', CODE)
    assert len(logged) > 80
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert sorted({*logged, *handed_over} - named) == []


def test_every_event_of_the_page_is_in_the_code() -> None:
    cells = re.findall(r"^\| (`[^|]+) \| ", PAGE, re.MULTILINE)
    events = {event for cell in cells for event in re.findall(r"`(\w+)`", cell)}
    assert len(events) > 80
    assert sorted(event for event in events if f'"{event}"' not in CODE) == []


def test_an_event_has_the_level_that_the_page_says() -> None:
    rows = re.findall(r"^\| (`[^|]+) \| ([a-z, ]+) \| ", PAGE, re.MULTILINE)
    told: dict[str, str] = {}
    for cell, levels in rows:
        events = re.findall(r"`(\w+)`", cell)
        each = levels.split(", ") if "," in levels else [levels] * len(events)
        told |= dict(zip(events, each, strict=True))
    logged = re.findall(r'\blog(?:ger)?\.(warning|error)\(\s*"(\w+)"', CODE)
    assert [event for level, event in logged if told.get(event, level) != level] == []
