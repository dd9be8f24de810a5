"""`python -m tests.peers [SUITE [TEST ...]]`: run the peers' suites; the exit code says whether
every listed test passed.

    python -m tests.peers                        both suites, whole
    python -m tests.peers librdkafka 0012 0081   some tests, by the first part of their names
    python -m tests.peers kafka-python test_group
"""

import argparse
import sys
import tempfile
from pathlib import Path

from . import kafka_python, librdkafka
from .places import Missing
from .verdicts import Outcome, allow_list, describe, judge

SUITES = ("librdkafka", "kafka-python")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suite", nargs="?", choices=SUITES, help="both when none is named")
    parser.add_argument("test", nargs="*", help="only these tests")
    parser.add_argument("--at-once", type=int, default=2, help="tests of librdkafka side by side")
    parser.add_argument(
        "--full", action="store_true", help="librdkafka's without its quick mode: an hour"
    )
    parser.add_argument("--folder", type=Path, help="keep data and output here")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="segbroker-peers-"))
    is_good = True
    for suite in [options.suite] if options.suite else SUITES:
        place = folder / suite
        place.mkdir(parents=True)
        try:
            outcomes = play(suite, place, options.test, options.at_once, is_quick=not options.full)
        except Missing as exc:
            print(f"{suite}: cannot be run here: {exc}")
            is_good = False
            continue
        verdict = judge(outcomes, allow_list(suite))
        is_good = is_good and verdict.is_good
        print(describe(suite, verdict), flush=True)
    print(f"output of the tests: {folder}")
    return 0 if is_good else 1


def play(
    suite: str, place: Path, tests: list[str], at_once: int, *, is_quick: bool
) -> dict[str, Outcome]:
    if suite == "librdkafka":

        def told(line: str) -> None:
            print(line, flush=True)

        return librdkafka.play(place, tests, at_once, told, is_quick=is_quick)
    return kafka_python.play(place / "data", tests, place / "output")


if __name__ == "__main__":
    sys.exit(main())
