"""docs/features.md names a proof for every row; the pages link to what exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = re.findall(
    r"^\| ([A-M]\d+) \| (.+) \| (.+) \|$", (ROOT / "docs" / "features.md").read_text(), re.MULTILINE
)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

# The rows of each section: a new one is added here and on the page.
SERVED = {
    "A": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13),
    "B": (1, 2, 3, 4, 5, 7),
    "C": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14),
    "D": (1, 2, 3, 4, 5, 6, 7, 8, 9),
    "E": (1, 2, 3, 5, 7, 8),
    "F": (1, 2, 3, 4, 5, 6),
    "H": (1, 2, 3, 4, 5, 6, 7, 8, 9),
    "I": (5, 7),
    "K": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18),
    "L": (1, 2, 3, 4, 5, 6, 7, 8),
    "M": (1, 2, 5),
}
PROVEN = [f"{section}{number}" for section, numbers in SERVED.items() for number in numbers]


@cache
def names_in(path: Path) -> set[str]:
    """Functions and test cases at the top of a module."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


@cache
def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def proofs(cell: str) -> list[tuple[str, str]]:
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", cell)


def test_the_page_has_the_rows_that_are_served_and_no_other() -> None:
    assert sorted(row for row, _, _ in ROWS) == sorted(PROVEN)


@pytest.mark.parametrize("row", PROVEN)
def test_every_row_names_a_test_that_exists(row: str) -> None:
    (cell,) = [cell for name, _, cell in ROWS if name == row]
    assert proofs(cell), f"{row} names no test"
    for path, name in proofs(cell):
        assert name in names_in(ROOT / path), f"{row}: there is no {path}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
        place = page.parent / target if target else page
        assert place.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(place), f"{page.name} links to {target}#{anchor}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f"docs/{page.name}" in readme, f"README.md does not link to docs/{page.name}"


def test_files_and_commands_that_a_page_names_exist() -> None:
    top = ("protocol", "segments", "broker", "client", "cli", "testing", "spark", "tests", "bench")
    files = {path.name for path in ROOT.glob("*.py")}
    for folder in (*top, "demo", "pyspark_segbroker"):
        for path in (ROOT / folder).rglob("*.*"):
            parts = path.relative_to(ROOT).parts
            files |= {"/".join(parts[first:]) for first in range(len(parts))}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        for name in re.findall(r"`([\w./-]+\.(?:py|c|java))(?:::\w+)?`", text):
            assert name in files, f"{page.name}: {name}"
        for module in re.findall(r"python -m ((?:bench|tests)[\w.]*)", text):
            place = ROOT / module.rstrip(".").replace(".", "/")
            found = place.with_suffix(".py").exists() or place.is_dir()
            assert found, f"{page.name}: python -m {module}"
        for target in re.findall(r"`make ([a-z]+)", text):
            assert target in targets, f"{page.name}: make {target}"
