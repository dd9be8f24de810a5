"""kafka-go's tests, out of its module: a client in Go with a protocol layer of its own.

They expect a broker at localhost:9092 and 9093, by those very numbers: the ports are written into
a copy of their source, which is built anew for each run.  Run is what stands in a file that
speaks of a broker; few of those tests need none.

One helper, that looks offsets up, gets the function by which it connects.  It has none, and ended
the whole run.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from ..support.daemon import running
from ..support.ports import keep_port
from .go_suite import add_users, ends, fetch
from .places import Missing, go, run
from .verdicts import Outcome

MODULE: Final = "github.com/segmentio/kafka-go"
VERSION: Final = "v0.4.51"
# The newest that its own tests know, which leave parts out by it.
KAFKA_VERSION: Final = "3.7.0"
BINARY: Final = "kafka-go.test"
LOOKS_UP: Final = "\t\t\tDialer:  config.Dialer,\n\t\t},\n\t}\n\n\tconn, err := cg.coordinator()"
CONNECTS: Final = "\t\t\tconnect: makeConnect(ConsumerGroupConfig{Timeout: 10 * time.Second}),\n"
FLAGS: Final = (
    *("--partitions", "1"),
    *("--authorizer", "acl", "--allow-everyone-if-no-acl-found"),
    *("--super-users", "User:ANONYMOUS"),
)
# Name and password of those that log in.
USERS: Final = {"adminplain": "admin-secret", "adminscram": "admin-secret-512"}
TIMEOUT_S: Final = 900

_TEST: Final = re.compile(r"^func (Test\w+)\(t ", re.MULTILINE)
_OF_A_BROKER: Final = re.compile(r"newLocalClient|createTopic\(|:9092")


def tests(source: Path) -> list[str]:
    """Those that stand in a file that speaks of a broker."""
    texts = (file.read_text() for file in source.glob("*_test.go"))
    return [test for text in texts if _OF_A_BROKER.search(text) for test in _TEST.findall(text)]


def play(folder: Path, words: list[str]) -> dict[str, Outcome]:
    """Run the suite, or the tests whose names hold one of `words`.

    Args:
        folder: gets the source, the data of the daemon, and the output.
        words: parts of names; none for all.

    Returns:
        test -> how it ended; a part of a test has a name of its own, as Go gives it.
    """
    source, data, output = folder / "source", folder / "data", folder / "output"
    ports = {"9092": str(keep_port()), "9093": str(keep_port())}
    fetch(MODULE, VERSION, source)
    found = tests(source)
    # A port that an address leaves out stands in the library itself.
    for file in source.glob("*.go"):
        text = file.read_text()
        for theirs, ours in ports.items():
            text = text.replace(theirs, ours)
        file.write_text(text)
    readers = source / "reader_test.go"
    text = readers.read_text()
    assert text.count(LOOKS_UP) == 1, "the helper is not as it was"
    readers.write_text(text.replace(LOOKS_UP, CONNECTS + LOOKS_UP))
    chosen = sorted(test for test in found if not words or any(one in test for one in words))
    if not chosen:
        raise Missing("no test of that name")
    run([go(), "test", "-mod=mod", "-c", "-o", BINARY, "."], source)
    command = [f"./{BINARY}", "-test.v", f"-test.run=^({'|'.join(chosen)})$"]
    command += [f"-test.timeout={TIMEOUT_S}s"]
    plain, login = (f"localhost:{port}" for port in ports.values())
    listeners = f"PLAINTEXT://{plain},SASL_PLAINTEXT://{login}"
    add_users(data, USERS)
    with running(data, "--listeners", listeners, *FLAGS), output.open("w") as sink:
        environment = {**os.environ, "KAFKA_VERSION": KAFKA_VERSION}
        # It ends by itself at its limit, and says then where each of its threads is.
        subprocess.run(
            command,
            cwd=source,
            env=environment,
            stdout=sink,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S + 60,
        )
    said = output.read_text()
    for theirs, ours in ports.items():  # parts are called by addresses
        said = said.replace(ours, theirs)
    return ends(chosen, said)
