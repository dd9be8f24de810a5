"""The tests of watermill-kafka, out of its Go module: publishers and subscribers in Go, on Sarama.

Most are watermill's tests for any broker: delivery, order, groups, acknowledgements, closing.  A
third part of their names is drawn anew for each run, so it is left off here; one that skips itself
there is skipped, though its parent says that it passed.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from ..support.daemon import running
from .go_suite import ends, fetch
from .places import Missing, go, run
from .verdicts import Outcome

MODULE: Final = "github.com/ThreeDotsLabs/watermill-kafka/v3"
VERSION: Final = "v3.1.0"
BINARY: Final = "watermill.test"
TIMEOUT_S: Final = 900

_TEST: Final = re.compile(r"^func (Test\w+)\(t ", re.MULTILINE)


def without_ids(outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    """The same, of tests and their parts: a part that skips itself inside was skipped."""
    found: dict[str, Outcome] = {}
    for name, outcome in outcomes.items():
        words = name.split("/")
        short = "/".join(words[:2])
        if len(words) <= 2:
            found.setdefault(short, outcome)
        elif outcome is Outcome.SKIPPED:
            found[short] = outcome
    return found


def play(folder: Path, words: list[str]) -> dict[str, Outcome]:
    """Run the suite, or the tests whose names hold one of `words`.

    Args:
        folder: gets the source, the data of the daemon, and the output.
        words: parts of names; none for all.
    """
    source, output = folder / "source", folder / "output"
    fetch(MODULE, VERSION, source)
    tests = source / "pkg" / "kafka"
    found = _TEST.findall((tests / "pubsub_test.go").read_text())
    chosen = sorted(test for test in found if not words or any(one in test for one in words))
    if not chosen:
        raise Missing("no test of that name")
    run([go(), "test", "-mod=mod", "-c", "-o", str(source / BINARY), "./pkg/kafka"], source)
    command = [str(source / BINARY), "-test.v", f"-test.run=^({'|'.join(chosen)})$"]
    command += [f"-test.timeout={TIMEOUT_S}s"]
    with running(folder / "data", "--partitions", "1") as daemon, output.open("w") as sink:
        subprocess.run(
            command,
            cwd=tests,
            env={**os.environ, "WATERMILL_TEST_KAFKA_BROKERS": daemon.address},
            stdout=sink,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S + 60,
        )
    return without_ids(ends(chosen, output.read_text()))
