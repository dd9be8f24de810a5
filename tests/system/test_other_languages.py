"""Clients that are not in Python or Java: franz-go and Sarama in Go, KafkaJS and
@platformatic/kafka in Node.

Their programs are in tests/support/clients/languages, the steps in tests/support/clients/spoken.py.
They run with `make matrix`, which fetches them from the registries of their languages; without the
language or its registry they are skipped, and say so.
"""

import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from ..support.clients import languages_together as languages
from ..support.scenario import ROOT, play
from .conftest import fill

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

SOURCES = ROOT / "tests/support/clients/languages"
BUILD_TIMEOUT_S = 600
VERSIONS = {
    "franz-go": "1.22.2",
    "Sarama": "1.61.1",
    "KafkaJS": "2.2.4",
    "platformatic-kafka": "1.35.0",
}
UNREACHABLE = ("dial tcp", "lookup ", "ENOTFOUND", "ETIMEDOUT", "ECONNREFUSED", "403 Forbidden")


def built(command: list[str], folder: Path) -> None:
    """Run a package manager; skip when there is no way to its registry."""
    run = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
    )
    if run.returncode != 0 and any(sign in run.stderr for sign in UNREACHABLE):
        pytest.skip(f"the registry cannot be reached: {run.stderr.splitlines()[-1]}")
    assert run.returncode == 0, run.stderr


def go(name: str, place: Path) -> list[str]:
    if shutil.which("go") is None:
        pytest.skip("there is no go")
    shutil.copytree(SOURCES / name, place, dirs_exist_ok=True)
    shutil.copy(SOURCES / "spoken.go", place)
    built(["go", "build", "-o", "client", "."], place)
    return [str(place / "client")]


def node(name: str, place: Path) -> list[str]:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    shutil.copytree(SOURCES / name, place, dirs_exist_ok=True)
    shutil.copy(SOURCES / "spoken.mjs", place)
    built(["npm", "ci", "--no-audit", "--no-fund"], place)
    return ["node", str(place / "main.mjs")]


BUILDERS: dict[str, Callable[[Path], list[str]]] = {
    "franz-go": lambda place: go("franz", place),
    "Sarama": lambda place: go("sarama", place),
    "KafkaJS": lambda place: node("kafkajs", place),
    "platformatic-kafka": lambda place: node("platformatic", place),
}


@pytest.fixture(scope="session")
def command_of(release_cache: Path) -> Callable[[str], list[str]]:
    """Builds the program of a client at its first use."""
    return cache(lambda name: BUILDERS[name](release_cache / f"{name}-{VERSIONS[name]}"))


@pytest.fixture(scope="module")
def written(secured: str) -> str:
    """First part of the names of the topics that our client filled."""
    prefix = f"ours-{secrets.token_hex(4)}"
    fill(secured, prefix)
    return prefix


CASES = [
    pytest.param(name, step.name, id=f"{name}-{VERSIONS[name]}-{step.name}")
    for name in languages.LIBRARIES
    for step in languages.steps(name)[1].of_release("1")
]


@pytest.mark.parametrize(("name", "step"), CASES)
def test_language(
    name: str,
    step: str,
    secured: str,
    written: str,
    command_of: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(languages.NAME, name)
    monkeypatch.setenv(languages.COMMAND, "\n".join(command_of(name)))
    prefix = f"{name}-{step}"
    command = [sys.executable, "-m", languages.MODULE, secured, prefix, written, step]
    play(command, prefix).check(step)
