"""Programs that benchmarks run in processes of their own are texts: no checker reads them."""

import re
from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
_IMPORT = re.compile(r"^\s*from (segbroker(?:\.\w+)+) import (\w+)", re.MULTILINE)


@pytest.mark.parametrize("path", sorted(BENCH.glob("*.py")), ids=lambda path: path.stem)
def test_what_they_import_is_there(path: Path) -> None:
    for module, name in _IMPORT.findall(path.read_text()):
        if not module.startswith("segbroker.spark"):  # half a gigabyte that may be missing
            assert hasattr(import_module(module), name), f"{module}.{name}"


def test_the_readme_has_only_figures_of_the_benchmarks_page() -> None:
    root = Path(__file__).parents[1]
    page = (root / "docs" / "benchmarks.md").read_text()
    said = (root / "README.md").read_text().split("\n## How fast\n")[1].split("\n## ")[0]
    figures = re.findall(r"[\d,]+ acks/s, p50 [\d.]+ ms|[\d,]+ k(?= )", said)
    assert len(figures) == 8
    for figure in figures:
        assert re.search(rf"(?<![\d,]){re.escape(figure)}", page), figure
