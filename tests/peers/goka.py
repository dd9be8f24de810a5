"""The system tests of goka, out of its Go module: a stream processor in Go, on Sarama.

They run processors and views with tables in compacted topics: rebalances, standby copies,
recovery, disconnections behind a proxy of theirs.  Changed in its source: topics get one replica,
where its default is two.
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

MODULE: Final = "github.com/lovoo/goka"
VERSION: Final = "v1.1.15"
BINARY: Final = "goka.test"
REPLICAS: Final = re.compile(r"(cfg\.(?:Table|Stream)\.Replication = )2\b")
ASKED: Final = 'EnsureTopicExists("test10", 4, 2, nil)'
OF_A_BROKER: Final = "initSystemTest(t)"
TIMEOUT_S: Final = 600

_TEST: Final = re.compile(r"^func (Test\w+)\(t ", re.MULTILINE)


def play(folder: Path, words: list[str]) -> dict[str, Outcome]:
    """Run the suite, or the tests whose names hold one of `words`.

    Args:
        folder: gets the source, the data of the daemon, and the output.
        words: parts of names; none for all.
    """
    source, output = folder / "source", folder / "output"
    fetch(MODULE, VERSION, source)
    tests = source / "systemtest"
    defaults, asks = source / "topic_manager.go", tests / "topicmanager_test.go"
    text, count = REPLICAS.subn(r"\g<1>1", defaults.read_text())
    assert count == 2, "the defaults are not as they were"
    defaults.write_text(text)
    text = asks.read_text()
    assert text.count(ASKED) == 1, "the test is not as it was"
    asks.write_text(text.replace(ASKED, ASKED.replace(" 2,", " 1,")))
    texts = [file.read_text() for file in tests.glob("*_test.go")]
    found = [test for text in texts if OF_A_BROKER in text for test in _TEST.findall(text)]
    chosen = sorted(test for test in found if not words or any(one in test for one in words))
    if not chosen:
        raise Missing("no test of that name")
    run([go(), "test", "-mod=mod", "-c", "-o", str(source / BINARY), "./systemtest"], source)
    command = [str(source / BINARY), "-test.v", f"-test.run=^({'|'.join(chosen)})$"]
    command += [f"-test.timeout={TIMEOUT_S}s"]
    with running(folder / "data", "--partitions", "1") as daemon, output.open("w") as sink:
        told = {"GOKA_SYSTEMTEST": "1", "GOKA_SYSTEMTEST_BROKERS": daemon.address}
        subprocess.run(
            command,
            cwd=tests,
            env={**os.environ, **told},
            stdout=sink,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S + 60,
        )
    return ends(chosen, output.read_text())
