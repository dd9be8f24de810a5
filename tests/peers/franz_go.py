"""franz-go's tests of its client, `pkg/kgo`, out of its module: those that want a broker.

They carry records through chains of groups: each reads a topic, writes the next one, and members
come and go meanwhile, with every balancer, static or not, of either group protocol, with and
without transactions.  Each record must come out exactly once.

The binary is built once.  A test wants a broker if it names one of `WANT_A_BROKER`: the others say
nothing about ours.  They run in one process against one daemon, as they do at home; it has a second
listener for those that log in.

Two things are changed.  Where a commit of a KIP-848 member is refused because its epoch rose under
way, they look no further and pass, as brokers before Kafka 4.3 do that: here it is a failure.  And
what the broker offers is asked once and before all of them, not by whichever comes first.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_hexdigest

from ..support.daemon import running
from ..support.ports import keep_port
from .go_suite import add_users, ends, fetch
from .places import Missing, cache, go, run, unfinished
from .verdicts import Outcome

MODULE: Final = "github.com/twmb/franz-go"
VERSION: Final = "v1.22.2"
FOLDER: Final = Path("pkg", "kgo")
BINARY: Final = "kgo.test"

# Each test of groups carries so many through three of them; half a million is their own number.
QUICK_RECORDS: Final = 50_000
FULL_RECORDS: Final = 500_000
TIMEOUT_S: Final = 900
FULL_TIMEOUT_S: Final = 3_600

WANT_A_BROKER: Final = re.compile(
    r"\b(newTestClient|testClientOpts|getSeedBrokers|adm|internalTopic|tmp\w*Topic\w*)\("
    r"|\bscramSeeds\b"
)
LOOKS_NO_FURTHER: Final = 't.Log("pre-KIP-1251 stale commit encountered, skipping validation")'
FAILS: Final = 't.Fatal("a commit was refused for its epoch")'
MAIN: Final = """package kgo

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	adm()
	os.Exit(m.Run())
}
"""
USER: Final = "somebody"
PASSWORD: Final = "of-tests-only"

_TEST: Final = re.compile(r"^func (Test\w+)\(t .*?^\}", re.DOTALL | re.MULTILINE)


def tree() -> Path:
    """The package with its built tests.  Raises Missing."""
    changed = xxh3_64_hexdigest((LOOKS_NO_FURTHER + FAILS + MAIN).encode())
    place = cache() / f"franz-go-{VERSION}-{changed}"
    if not place.exists():
        cache().mkdir(parents=True, exist_ok=True)
        with unfinished(place) as work:
            source = work / "source"
            fetch(MODULE, VERSION, source)
            patch(source / FOLDER)
            run([go(), "test", "-c", "-o", BINARY, "."], source / FOLDER)
    return place / "source" / FOLDER


def patch(package: Path) -> None:
    """What is changed; see above."""
    helpers = package / "helpers_test.go"
    text = helpers.read_text()
    assert text.count(LOOKS_NO_FURTHER) == 1, "the chain of groups is not as it was"
    helpers.write_text(text.replace(LOOKS_NO_FURTHER, FAILS))
    (package / "main_test.go").write_text(MAIN)


def tests(package: Path) -> list[str]:
    """The tests that a broker is needed for."""
    return sorted(
        found[1]
        for file in package.glob("*_test.go")
        for found in _TEST.finditer(file.read_text())
        if WANT_A_BROKER.search(found[0])
    )


def play(folder: Path, words: list[str], *, is_quick: bool = True) -> dict[str, Outcome]:
    """Run the suite, or the tests whose names hold one of `words`.

    Args:
        folder: gets the data of the daemon, and the output.
        words: parts of names; none for all.
        is_quick: with a tenth of the records.

    Returns:
        test -> how it ended; a part of a test has a name of its own, as Go gives it.
    """
    package = tree()
    chosen = [test for test in tests(package) if not words or any(one in test for one in words)]
    if not chosen:
        raise Missing("no test of that name")
    limit_s = TIMEOUT_S if is_quick else FULL_TIMEOUT_S
    command = [f"./{BINARY}", "-test.v", f"-test.run=^({'|'.join(chosen)})$"]
    command += [f"-test.timeout={limit_s}s"]
    output = folder / "output"
    data = folder / "data"
    add_users(data, {USER: PASSWORD})
    login = f"127.0.0.1:{keep_port()}"
    listeners = f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://{login}"
    with (
        running(data, "--listeners", listeners) as daemon,
        output.open("w") as sink,
        (folder / "errors").open("w") as errors,
    ):
        environment = {
            "KGO_LOG_LEVEL": "none",
            **os.environ,
            "KGO_SEEDS": daemon.address,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(QUICK_RECORDS if is_quick else FULL_RECORDS),
            "KGO_TEST_SCRAM_SEEDS": login,
            "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}",
        }
        # It ends by itself at its limit, and says then where each of its threads is.
        subprocess.run(
            command, cwd=package, env=environment, stdout=sink, stderr=errors, timeout=limit_s + 60
        )
    return ends(chosen, output.read_text())
