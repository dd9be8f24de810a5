"""As much of toxiproxy's door (HTTP, JSON) as Sarama's tests use, in front of cutting proxies.

| asked | done |
|---|---|
| GET /proxies/NAME | the proxy |
| POST /proxies/NAME, `enabled` or not | who is connected is reset, and who comes, while it is not |
| POST /proxies/NAME/toxics, a `reset_peer` | the same, until all is reset |
| ... a `latency` | what the broker says is held up for so many ms, until all is reset |
| POST /reset | every proxy is as it was |
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ..support.cutting_proxy import CuttingProxy


@contextmanager
def door(proxies: Mapping[str, CuttingProxy]) -> Iterator[str]:
    """Serve the door of these proxies, by name; the URL of it."""

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._tell(*self._named())

        def do_POST(self) -> None:
            asked = json.loads(
                self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}"
            )
            if self.path == "/reset":
                for proxy in proxies.values():
                    proxy.come_back()
                    proxy.reply_delay_s = 0.0
                self._tell(204, None)
                return
            status, told = self._named()
            if status != 200:
                self._tell(status, told)
                return
            proxy = proxies[told["name"]]
            if not self.path.endswith("/toxics"):
                (proxy.come_back if asked["enabled"] else proxy.go_away)()
                told["enabled"] = asked["enabled"]
            else:
                if asked["type"] == "reset_peer":
                    proxy.go_away()
                elif asked["type"] == "latency":
                    proxy.reply_delay_s = asked["attributes"]["latency"] / 1_000
                told = asked
            self._tell(200, told)

        def _named(self) -> tuple[int, dict[str, Any]]:
            """The status for the proxy of the path, and what is told of it."""
            name = self.path.split("/")[2] if self.path.startswith("/proxies/") else ""
            if name not in proxies:
                return 404, {"error": "proxy not found"}
            return 200, {"name": name, "listen": proxies[name].address, "enabled": True}

        def _tell(self, status: int, told: dict[str, Any] | None) -> None:
            body = b"" if told is None else json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
