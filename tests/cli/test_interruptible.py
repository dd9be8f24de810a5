"""SIGTERM ends a client command as Ctrl-C does."""

import signal
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from segbroker.cli.command import Command, interruptible
from segbroker.cli.exit_codes import ExitCode
from segbroker.client.driver import is_hurried


@pytest.fixture(autouse=True)
def _handler_is_put_back() -> Iterator[None]:
    was = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, was)


def test_sigterm_leaves_a_clients_block_without_waiting_for_a_broker() -> None:
    left_by: list[BaseException] = []

    @click.command(cls=Command)
    def waits() -> None:
        interruptible()
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException as exc:
            left_by.append(exc)
            raise

    assert CliRunner().invoke(waits).exit_code == ExitCode.TERMINATED
    assert [is_hurried(exc) for exc in left_by] == [True]
