"""Clients of other languages: which there are, and their scenario as a program.

    python -m tests.support.clients.languages_together BOOTSTRAP PREFIX OURS [STEP ...]

SPOKEN, in the environment, names the client; the command that starts it follows in SPOKEN_COMMAND.
"""

import os
import sys
from typing import Final

from .spoken import CODECS, Spoken, steps_of
from .steps import Steps
from .together import run_as_member

MODULE: Final = "tests.support.clients.languages_together"
NAME, COMMAND = "SPOKEN", "SPOKEN_COMMAND"

# Name -> (codecs without a plug-in, what it has not).
LIBRARIES: Final[dict[str, tuple[tuple[str, ...], frozenset[str]]]] = {
    "franz-go": (CODECS, frozenset()),
    "Sarama": (CODECS, frozenset()),
    "KafkaJS": (("none", "gzip"), frozenset({"static"})),
    "platformatic-kafka": (("none", "gzip", "snappy", "lz4"), frozenset()),
}


def steps(name: str, command: tuple[str, ...] = ()) -> tuple[Spoken, Steps]:
    """The client called `name`, and the steps that it has."""
    codecs, lacks = LIBRARIES[name]
    client = Spoken(command, codecs, lacks)
    return client, steps_of(client, MODULE)


if __name__ == "__main__":
    CLIENT, STEPS = steps(os.environ[NAME], tuple(os.environ[COMMAND].split("\n")))
    if not run_as_member(CLIENT):
        STEPS.main("1")
    sys.exit()
