"""The same hashes in every process: sets of strings are iterated in the order of their hashes."""

import os
import sys


def ensure(module: str) -> None:
    """Begin `python -m module` again with PYTHONHASHSEED=0, unless it has it."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", module, *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
