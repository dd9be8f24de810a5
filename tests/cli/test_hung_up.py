"""A listener that hangs up: the shell says what may be wanted, in the words of the shell."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from segbroker.cli.exit_codes import ExitCode

from ..support.waiting import within_one_of
from .test_security import Shell


@pytest.fixture
def hangs_up() -> Iterator[str]:
    """The address of one that takes a request and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    taken, _ = listener.accept()
                except OSError:
                    return
                with taken:
                    taken.recv(4096)

        thread = threading.Thread(target=run)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        # Closing alone does not wake who waits in accept.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_listener_that_hangs_up_may_want_tls_or_a_login(hangs_up: str, tmp_path: Path) -> None:
    output = Shell(tmp_path)("topic", "list", "-b", hangs_up, code=ExitCode.UNREACHABLE)
    assert "closed the connection without an answer" in output
    hint = "Hint: something listens there; if it requires TLS or a login: -X security.protocol="
    assert hint in output
    assert "(security=)" not in output  # those are words of Python


@pytest.mark.parametrize("setup_timeout_ms", [100, 5_000])
def test_a_listener_that_says_nothing_is_not_told_to_be_started(
    setup_timeout_ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_not_told(within_ms: int) -> None:
        monkeypatch.setattr("segbroker.cli.topic.CONNECT_TIMEOUT_MS", within_ms)
        with socket.create_server(("127.0.0.1", 0)) as listener:  # nobody accepts
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            output = Shell(tmp_path)("topic", "list", "-b", address, code=ExitCode.UNREACHABLE)
        assert "Hint: something listens there but does not answer" in output
        assert "segbroker serve" not in output

    monkeypatch.setattr("segbroker.client.network.SETUP_TIMEOUT_MS", setup_timeout_ms)
    within_one_of((500, 15_000), is_not_told)
