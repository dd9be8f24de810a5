"""What is done to the proxies in front of a broker through toxiproxy's door, and Sarama's tests."""

import json
import socket
import threading
import urllib.request
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from ..support.cutting_proxy import CuttingProxy
from . import sarama
from .toxiproxy import door

MAIN = """package sarama

var testTopicDetails = map[string]*TopicDetail{"test.1": {ReplicationFactor: 3}}

func TestMain(m *testing.M) {
\tlisten := fmt.Sprintf("0.0.0.0:%d", 29090+i)
\ttarget := fmt.Sprintf("kafka-%d:%d", i, 29090+i)
\taddress := fmt.Sprintf("127.0.0.1:%d", 29090+i)
}
"""


def asked(url: str, **body: object) -> tuple[int, Any]:
    """POST; the status and the answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        said = answer.read()
        return answer.status, json.loads(said) if said else None


def be_a_broker(target: socket.socket) -> None:
    """Be a broker that answers each who comes with one byte."""
    with suppress(OSError):
        while True:
            with closing(target.accept()[0]) as client:
                client.recv(1)
                client.sendall(b"y")


def passes(proxy: CuttingProxy) -> bool:
    """Whether the broker behind a proxy answers."""
    host, _, port = proxy.address.rpartition(":")
    try:
        with closing(socket.create_connection((host, int(port)), 60)) as client:
            client.sendall(b"x")
            return client.recv(1) == b"y"
    except OSError:
        return False


def test_a_broker_is_away_until_its_proxy_is_enabled_or_reset() -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as target,
        CuttingProxy(target.getsockname()) as proxy,
        door({"kafka1": proxy}) as url,
    ):
        threading.Thread(target=be_a_broker, args=[target], daemon=True).start()
        with urllib.request.urlopen(f"{url}/proxies/kafka1", timeout=60) as answer:
            assert json.loads(answer.read())["name"] == "kafka1"
        assert passes(proxy)
        assert asked(f"{url}/proxies/kafka1", enabled=False)[1]["enabled"] is False
        assert not passes(proxy)
        asked(f"{url}/proxies/kafka1", enabled=True)
        assert passes(proxy)
        toxic = {"name": "reset-peer", "type": "reset_peer", "stream": "downstream"}
        assert asked(f"{url}/proxies/kafka1/toxics", **toxic) == (200, toxic)
        assert not passes(proxy)
        assert asked(f"{url}/reset") == (204, None)
        asked(f"{url}/proxies/kafka1/toxics", type="latency", attributes={"latency": 10})
        assert passes(proxy)
        assert proxy.reply_delay_s == 0.01
        with pytest.raises(HTTPError, match="404") as refused:
            asked(f"{url}/proxies/kafka9", enabled=False)
        refused.value.close()


def test_the_functional_tests_are_run_by_ports_of_ours_with_one_replica(tmp_path: Path) -> None:
    main = tmp_path / "functional_test.go"
    main.write_text(MAIN)
    (tmp_path / "functional_client_test.go").write_text("func TestFuncOne(t *testing.T) {\n")
    (tmp_path / "client_test.go").write_text("func TestOfNoBroker(t *testing.T) {\n")
    assert sarama.tests(tmp_path) == ["TestFuncOne"]
    sarama.patch(main, [1, 2, 3, 4, 5])
    assert "29090" not in main.read_text()
    assert main.read_text().count("[]int{0, 1, 2, 3, 4, 5}[i]") == 3
    assert "ReplicationFactor: 1" in main.read_text()
