"""A daemon of the tests has its address for itself, also while it is away."""

import errno
import signal
import socket
from pathlib import Path

import pytest

from segbroker.client import Admin

from .daemon import RETENTION_INTERVAL_MS, address_of, running, start

LISTENERS = "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"


@pytest.mark.parametrize(
    "flags",
    [(), ("--listeners", LISTENERS, "--listener-security-protocol-map", PROTOCOLS)],
    ids=["listen", "listeners"],
)
def test_it_comes_back_under_its_address_which_nobody_had_meanwhile(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    daemon = start(tmp_path / "data", *flags)
    try:
        here = daemon.host_and_port
        assert flags or daemon.address == address_of(tmp_path / "data")
        daemon.stop(signal.SIGKILL)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(here).close()
        with socket.socket() as other, pytest.raises(OSError, match="in use") as refused:
            other.bind(here)
        assert refused.value.errno == errno.EADDRINUSE
        daemon.again()
        assert daemon.host_and_port == here
        socket.create_connection(here).close()
    finally:
        daemon.stop()
    # By another function, it has the same.
    daemon = start(tmp_path / "data", *flags)
    daemon.stop()
    assert daemon.host_and_port == here


def test_another_directory_has_another_address(tmp_path: Path) -> None:
    assert address_of(tmp_path / "one") != address_of(tmp_path / "two")


def test_it_never_looks_at_ages_by_itself(tmp_path: Path) -> None:
    flags = ("--retention-interval-ms", "50")
    for given, expected in (((), RETENTION_INTERVAL_MS), (flags, 50)):
        with running(tmp_path / "data", *given) as daemon, Admin(daemon.address) as admin:
            here = admin.describe_cluster().controller
            setting = admin.describe_broker(here)["retention_interval_ms"]
            assert setting.value == str(expected)
