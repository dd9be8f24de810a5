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
