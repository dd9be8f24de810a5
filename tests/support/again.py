"""Run pytest; the few tests that fail are run again, alone, and what passes then is named as flaky.

    python -m tests.support.again --tests 3 -q -n 5 --dist loadfile

The second run is a process of its own without workers beside it, and has each test twice: a test
that fails in it is a failure, as all are where more than `--tests` have failed, where the run came
to no end (a file that cannot be imported, Ctrl-C), and with `--tests 0`, the default.  What the
first run said of them stays in the output.  See docs/decisions/0445.
"""

import json
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

# Where pytest keeps the names of the tests that failed in its last run, below its root.
FAILED = Path(".pytest_cache/v/cache/lastfailed")
TIMES = 2


def main(arguments: list[str], root: Path) -> int:
    """Returns the exit code: 0 where all tests passed, in the first run or in both later ones."""
    parser = ArgumentParser(prog="tests.support.again", description="pytest, and again what fails")
    parser.add_argument("--tests", type=int, default=0, help="how many may be run again, at most")
    options, of_pytest = parser.parse_known_args(arguments)
    failed_file = root / FAILED
    failed_file.unlink(missing_ok=True)  # of a run before, with other tests in it
    code = _pytest(of_pytest, root)
    if code != pytest.ExitCode.TESTS_FAILED or not failed_file.exists():
        return code
    names: list[str] = sorted(json.loads(failed_file.read_bytes()))
    if not 0 < len(names) <= options.tests:
        return code
    for _ in range(TIMES):
        again = _pytest(["-q", *names], root)
        if again:
            return again
    for name in names:
        print(f"FLAKY {name}: failed among all, passed {TIMES} times alone", file=sys.stderr)
    return 0


def _pytest(arguments: list[str], root: Path) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=root).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
