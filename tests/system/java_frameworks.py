"""Frameworks of Java and the programs that use them: jars from Maven Central, compiled once."""

from pathlib import Path

import pytest

from bench.peers.programs import Missing, maven

from ..support.java import compiled, java
from ..support.kafka_program import CLIENTS
from ..support.releases import alone
from ..support.tools import require

# group, artifact, version
Jar = tuple[str, str, str]


def fetched(name: str, jars: tuple[Jar, ...], cache: Path) -> str:
    """A class path of jars and of all that they need; skips where that cannot be had.

    Args:
        name: of the folder in which the jars are kept: the framework and its release.
        jars: what is needed directly.
        cache: folder of the lock: two workers do not fetch the same.
    """
    java()
    require("mvn", "maven")
    try:
        with alone(cache / name):
            folder = maven(name, *jars)
    except Missing as exc:
        pytest.skip(str(exc))
    return ":".join(map(str, sorted(folder.glob("*.jar"))))


def built(app: str, name: str, jars: tuple[Jar, ...], cache: Path) -> str:
    """The class path of a program, and of all that it needs.

    Args:
        app: class of tests/support/clients.
        name: as of `fetched`.
        jars: as of `fetched`.
        cache: where its classes are kept.
    """
    return compiled([CLIENTS / f"{app}.java"], fetched(name, jars, cache), cache)
