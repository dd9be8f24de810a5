"""The same hashes in every process: sets of strings are iterated in the order of their hashes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent


def ensure(module: str) -> None:
    """Begin `python -m module` again with PYTHONHASHSEED=0, unless it has it."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", module, *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )


def done(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m module ...` in a process of its own, which has them by `ensure`."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
