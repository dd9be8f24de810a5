"""Steps that nobody wrote, crashes that nobody planned: Hypothesis against the crash model.

A sample; `python -m tests.soak.models` goes on for as long as one likes.
"""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from ..support.extent import share
from .crash.explorer import silence
from .crash.machine import CrashMachine

pytestmark = pytest.mark.timeout(900)  # some seconds on a quiet machine


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with silence():
        yield


TestCrashes = CrashMachine.TestCase
TestCrashes.settings = settings(
    max_examples=share(150, 1_000), stateful_step_count=25, deadline=None
)
