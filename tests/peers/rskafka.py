"""rskafka's tests, out of its crate: a client in Rust with a protocol layer of its own.

They carry records between rskafka and librdkafka with every codec, and expect topics to be made
only when they ask for it.  Left out are those that start a Java, which it fetches by itself, and
one that wants a SOCKS proxy.
"""

import re
from pathlib import Path
from typing import Final

from ..support.daemon import running
from . import crate_suite
from .go_suite import add_users
from .verdicts import Outcome

VERSION: Final = "0.6.0"
FILES: Final = ("client", "consumer", "produce_consume", "producer")
# Without what they want the first two say that they are skipped, and pass; the last wants none.
WITHOUT: Final = ("java", "socks5", "backoff_terminates")
USERS: Final = {"admin": "admin-secret"}


def play(folder: Path, words: list[str]) -> dict[str, Outcome]:
    """Run the suite, or the tests whose names hold one of `words`.

    Args:
        folder: gets the source, the data of the daemon, and the output.
        words: parts of names; none for all.
    """
    source, data = folder / "source", folder / "data"
    crate_suite.fetch("rskafka", VERSION, source, crate_suite.RSASL)
    add_users(data, USERS)
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    with running(data, "--listeners", listeners, "--no-auto-create-topics") as daemon:
        login = re.search(r'"SASL_PLAINTEXT://([^"]+)"', daemon.log.read_text())
        assert login is not None
        environment = {
            "TEST_INTEGRATION": "1",
            "TEST_BROKER_IMPL": "kafka",
            "KAFKA_CONNECT": daemon.address,
            "KAFKA_SASL_CONNECT": login[1],
        }
        output = folder / "output"
        return crate_suite.play(
            source,
            FILES,
            words,
            environment,
            features=("full",),
            without=WITHOUT,
            output=output,
        )
