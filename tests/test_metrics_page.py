"""docs/metrics.md, the dashboard and the alert rules have the families of the code."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from segbroker.broker.metrics.families import FAMILIES

from .support.scrape import FOREIGN

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "metrics.md").read_text()
ALERTS = (DOCS / "prometheus-alerts.yml").read_text()
DASHBOARD = json.loads((DOCS / "grafana-dashboard.json").read_text())
_NAME = re.compile(r"\b(?:segbroker|process)_\w+")
_PART = re.compile(r"_(?:bucket|count|sum)$")


def expressions() -> Iterator[str]:
    """Of the dashboard's panels and variables, and of the rules."""
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (one["query"] for one in DASHBOARD["templating"]["list"])
    yield from re.findall(r"^ +expr: (.+)$", ALERTS, re.MULTILINE)


def family_of(name: str) -> str:
    return name if name in FAMILIES else _PART.sub("", name)


def test_the_page_lists_every_family_as_the_code_has_it_and_no_other() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `segbroker_")]
    assert rows == [
        f"| `{name}` | {one.kind} | {', '.join(one.labels)} | {one.help} |"
        for name, one in FAMILIES.items()
    ]
    assert {name for name in _NAME.findall(PAGE) if name.startswith("process")} == FOREIGN


def test_the_dashboard_and_the_rules_use_only_families_that_are_there() -> None:
    used = {family_of(name) for text in expressions() for name in _NAME.findall(text)}
    assert len(used) > 40
    assert used <= FAMILIES.keys() | FOREIGN


def test_other_pages_name_only_families_that_are_there() -> None:
    other = {"segbroker_session"}  # a fixture
    for page in DOCS.glob("*.md"):
        named = re.findall(r"`((?:segbroker|process)_\w+)[`{]", page.read_text())
        assert {family_of(name) for name in named} <= FAMILIES.keys() | FOREIGN | other, page.name


def test_labels_of_the_dashboard_and_of_the_rules_are_those_of_the_families() -> None:
    known = {label for family in FAMILIES.values() for label in family.labels}
    known |= {"instance", "job", "le"}
    for text in expressions():
        for labels in re.findall(r"by \(([^)]*)\)", text) + re.findall(r"\{(\w+)[=~!]", text):
            assert set(labels.replace(" ", "").split(",")) <= known, text


def test_a_name_says_its_kind_and_its_unit() -> None:
    for name, family in FAMILIES.items():
        assert name.startswith("segbroker_")
        assert name.endswith("_total") == (family.kind == "counter"), name
        assert name.endswith("_info") == (family.kind == "info"), name
        assert not re.search(r"_(ms|kb|mb|percent|milliseconds)(_|$)", name), name
        assert family.help.endswith("."), name


def test_each_alert_says_what_to_do() -> None:
    alerts = ALERTS.split("- alert: ")[1:]
    assert len(alerts) == len({alert.split()[0] for alert in alerts}) > 15
    for alert in alerts:
        assert "summary:" in alert
        assert "what_to_do:" in alert
        assert re.search(r"severity: (critical|warning)", alert)
