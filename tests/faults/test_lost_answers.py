"""Batches of librdkafka whose answers were lost, sent again among others that gathered."""

from pathlib import Path

from ..support.cutting_proxy import CuttingProxy
from ..support.daemon import running
from .lost_answers import FITS, Round, play


def test_what_is_sent_again_is_there_once(tmp_path: Path) -> None:
    with (
        CuttingProxy(("127.0.0.1", 0)) as proxy,
        running(tmp_path / "data", "--advertised", proxy.address) as daemon,
    ):
        proxy.target = daemon.host_and_port
        assert play(proxy, "t", FITS) == Round(twice=0, missing=0, refused=0)
