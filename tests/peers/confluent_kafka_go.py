"""The integration tests of confluent-kafka-go, out of its Go module: librdkafka as Go uses it.

They are run twice, once with groups of each protocol.  Changed in its source: a flush that waits
for ever is one of a minute, because Go's wrapper of it does not wait at all for ever; and what
draws names is seeded by nanoseconds, because two tests that begin in one second draw the same.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Final

from ..support.daemon import running
from ..support.ports import keep_port
from .go_suite import add_users, ends, fetch
from .places import go, need, run
from .verdicts import Outcome

MODULE: Final = "github.com/confluentinc/confluent-kafka-go/v2"
VERSION: Final = "v2.11.1"
BINARY: Final = "kafka.test"
# These want a broker; TestIntegration is a suite of parts.
TESTS: Final = ("TestIntegration", "TestTransactionalProducer", "TestTransactionalSendOffsets")
PROTOCOLS: Final = ("classic", "consumer")
FLUSH: Final = "producer.Flush(-1)"
SEED: Final = "rand.Seed(time.Now().Unix())"
USER: Final = "testuser"
PASSWORD: Final = "testpass"
FLAGS: Final = ("--partitions", "1", "--authorizer", "acl", "--allow-everyone-if-no-acl-found")
TIMEOUT_S: Final = 600


def patch(tests: Path) -> None:
    """What is changed; see above."""
    transactions = tests / "txn_integration_test.go"
    text = transactions.read_text()
    assert text.count(FLUSH) == 1, "the flush is not where it was"
    transactions.write_text(text.replace(FLUSH, FLUSH.replace("-1", "60_000")))
    for file in tests.glob("*_test.go"):
        text = file.read_text()
        file.write_text(text.replace(SEED, SEED.replace("Unix()", "UnixNano()")))


def choose(words: list[str]) -> tuple[list[str], list[str]]:
    """The tests whose names hold one of `words`, and flags; parts of TestIntegration, if none."""
    named = [test for test in TESTS if not words or any(one in test for one in words)]
    if named:
        return named, []
    return ["TestIntegration"], [f"-testify.m={'|'.join(map(re.escape, words))}"]


def play(folder: Path, words: list[str]) -> dict[str, Outcome]:
    """Run the suite, or the tests whose names hold one of `words`.

    Args:
        folder: gets the source, the data of the daemon, and the output.
        words: parts of names, also of parts of TestIntegration; none for all.

    Returns:
        test -> how it ended; behind the name, the protocol of its groups.
    """
    need("gcc")
    source = folder / "source"
    fetch(MODULE, VERSION, source)
    tests = source / "kafka"
    patch(tests)
    run([go(), "test", "-mod=mod", "-c", "-o", str(source / BINARY), "./kafka"], source)
    chosen, flags = choose(words)
    command = [str(source / BINARY), "-test.v", f"-test.run=^({'|'.join(chosen)})$"]
    command += [f"-test.timeout={TIMEOUT_S}s", *flags]
    add_users(folder / "data", {USER: PASSWORD})
    guarded = f"127.0.0.1:{keep_port()}"
    listeners = f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://{guarded}"
    found: dict[str, Outcome] = {}
    with running(folder / "data", "--listeners", listeners, *FLAGS) as daemon:
        told = {
            "Brokers": daemon.address,
            "BrokersSasl": guarded,
            "SaslUsername": USER,
            "SaslPassword": PASSWORD,
            "SaslMechanism": "PLAIN",
        }
        (tests / "testconf.json").write_text(json.dumps(told))
        for protocol in PROTOCOLS:
            output = folder / f"output-{protocol}"
            with output.open("w") as sink:
                subprocess.run(
                    command,
                    cwd=tests,
                    env={**os.environ, "TEST_CONSUMER_GROUP_PROTOCOL": protocol},
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    timeout=TIMEOUT_S + 60,
                )
            outcomes = ends(chosen, output.read_text())
            found.update({f"{name} [{protocol}]": how for name, how in outcomes.items()})
    return found
