"""The pytest plugin, as it comes with the installed package, in the runs of others."""

import re
from pathlib import Path

import pytest

# Once for all: what the runs below import themselves is dropped after each, and typing, which
# remembers annotations, would hand those of one run's modules to the next one's.
import segbroker.testing.embedded  # noqa: F401

pytest_plugins = ["pytester"]

GUIDE = Path(__file__).parent.parent.parent / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_fixtures_are_there_and_say_what_they_are(pytester: pytest.Pytester) -> None:
    listing = pytester.runpytest("--fixtures")
    listing.stdout.fnmatch_lines(
        [
            "segbroker -- *",
            "    A segbroker in memory, new for this test and ended with it*",
            "segbroker_session [[]session scope[]] -- *",
        ]
    )


def test_each_test_gets_an_empty_broker_and_the_session_keeps_one(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        from segbroker.client import Admin

        def topics(broker):
            with Admin(broker.address) as admin:
                return set(admin.list_topics())

        def test_one(segbroker, segbroker_session):
            segbroker.create_topic("mine")
            segbroker_session.create_topic("ours")
            assert topics(segbroker) == {"mine"}

        def test_two(segbroker, segbroker_session):
            assert topics(segbroker) == set()
            assert topics(segbroker_session) == {"ours"}
        """
    )
    pytester.runpytest().assert_outcomes(passed=2)


def test_what_the_brokers_of_a_run_log_is_an_option_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(segbroker, segbroker_session):
            for broker in (segbroker, segbroker_session):
                assert broker.config.log_level == "info"
        """
    )
    pytester.runpytest("--segbroker-log-level", "info").assert_outcomes(passed=1)


def test_a_run_that_uses_no_fixture_pays_for_no_import(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_of_weight_was_imported():
            heavy = {"trio", "segbroker.broker", "segbroker.client", "segbroker.testing.embedded"}
            assert not heavy & sys.modules.keys()
        """
    )
    # A process of its own: this one has imported everything. pytest-trio imports trio by itself.
    run = pytester.runpytest_subprocess("-p", "no:trio", "-p", "no:anyio", "-p", "no:pytest_trio")
    run.assert_outcomes(passed=1)


def test_nothing_is_written_below_the_working_directory(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(segbroker):
            segbroker.send(segbroker.create_topic("t"), [b"x"])
        """
    )
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(passed=1)
    written = {path.name for path in pytester.path.iterdir()} - {"__pycache__"}
    assert written == {"test_nothing_is_written_below_the_working_directory.py"}


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_examples_of_the_guide_work_as_printed(pytester: pytest.Pytester, example: str) -> None:
    pytester.makepyfile(example)
    pytester.runpytest().assert_outcomes(passed=1)
