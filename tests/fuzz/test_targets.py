"""A few hundred inputs for each target: good ones, damaged ones, and noise."""

from collections.abc import Iterator
from random import Random

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..support.extent import share
from . import dispatch, seeds
from .soak import mutated
from .targets import TARGETS

# Opening a directory or hashing a password costs milliseconds, a decoder microseconds.
EXAMPLES = {"directory": 150, "dispatch": 150, "batch": 300, "login": 100}


@pytest.fixture(autouse=True)
def log_is_as_before() -> Iterator[None]:
    """A target that starts a broker watches its log."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="module", autouse=True)
def no_broker_is_left() -> Iterator[None]:
    """What comes after these tests is alone in the process."""
    yield
    dispatch.stop()


each_target = pytest.mark.parametrize("name", TARGETS)


@each_target
def test_good_inputs_are_what_they_should_be(name: str) -> None:
    inputs = seeds.of_target(name)
    assert inputs
    for data in inputs:
        TARGETS[name](data)


@each_target
def test_whatever_comes_the_target_holds(name: str) -> None:
    inputs = seeds.of_target(name)

    @settings(
        max_examples=EXAMPLES.get(name, share(200, 500)),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(st.binary(max_size=200), st.builds(damaged, st.sampled_from(inputs), EDITS)))
    def holds(data: bytes) -> None:
        TARGETS[name](data)

    holds()


ON_DISK = dict.fromkeys(("log", "index", "manifest", "producers", "snapshot"), share(1_000, 4_000))
"""Inputs of the targets that read files, beside those that Hypothesis makes."""


@pytest.mark.timeout(600)  # some seconds on a quiet machine
@pytest.mark.parametrize("name", ON_DISK)
def test_thousands_of_damaged_files_are_read_without_an_exception(name: str) -> None:
    random, inputs = Random(1), seeds.of_target(name)
    for _ in range(ON_DISK[name]):
        TARGETS[name](mutated(random, inputs))


EDITS = st.lists(
    st.tuples(
        st.integers(0, 1 << 16),
        st.sampled_from(("overwrite", "cut", "insert")),
        st.sampled_from((b"\0", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff"))
        | st.binary(min_size=1, max_size=8),
    ),
    max_size=4,
)


def damaged(data: bytes, edits: list[tuple[int, str, bytes]]) -> bytes:
    """`data` after some edits, each (where, how, with what)."""
    out = bytearray(data)
    for where, how, what in edits:
        position = where % (len(out) + 1)
        match how:
            case "overwrite":
                out[position : position + len(what)] = what
            case "cut":
                del out[position : position + len(what)]
            case "insert":
                out[position:position] = what
    return bytes(out)
