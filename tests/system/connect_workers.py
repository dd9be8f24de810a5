"""Workers of Kafka Connect as child processes, and their REST interface."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ..support.kafka_program import program
from ..support.ports import keep_port
from ..support.program import Program, eventually

INTERNAL: Final = ("connect-configs", "connect-offsets", "connect-status")
PLAIN: Final = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": "300",
    "plugin.discovery": "service_load",
}
DISTRIBUTED: Final = {
    "group.id": "connect",
    "config.storage.topic": INTERNAL[0],
    "offset.storage.topic": INTERNAL[1],
    "status.storage.topic": INTERNAL[2],
    **{f"{what}.storage.replication.factor": "1" for what in ("config", "offset", "status")},
    "exactly.once.source.support": "enabled",
    # Whoever is missed is missed soon, and its work is given to others at once.
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
}


class Worker:
    """One worker, and its REST interface."""

    def __init__(self, program: Program, port: int) -> None:
        self.program = program
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401
        """What it answers to GET, or to PUT with a body; None while it cannot."""
        data = None if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "PUT"
        request = urllib.request.Request(
            self._url + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            error.close()
            return None
        except OSError:
            return None

    def put(self, name: str, conf: Mapping[str, str]) -> None:
        """Make a connector, as soon as the worker answers."""
        eventually(lambda: self.ask(f"/connectors/{name}/config", conf) is not None, self.program)

    def runs(self, name: str) -> bool:
        """Whether a connector and its task are running."""
        said = self.ask(f"/connectors/{name}/status")
        states = [said["connector"], *said["tasks"]] if said else []
        return len(states) == 2 and all(one["state"] == "RUNNING" for one in states)


class Workers:
    """Workers on one broker, each with files of its own."""

    def __init__(self, address: str, path: str, folder: Path) -> None:
        """path: class path with Connect and its connectors."""
        self._address, self._path, self._folder = address, path, folder
        self._started = 0

    @contextmanager
    def worker(
        self, kind: str, conf: Mapping[str, str], connectors: Mapping[str, Mapping[str, str]]
    ) -> Iterator[Worker]:
        """A worker to the end of the block.

        Args:
            kind: Standalone or Distributed.
            conf: beside PLAIN.
            connectors: what a standalone one is to run.
        """
        self._started += 1
        port = keep_port()
        listening = {
            "bootstrap.servers": self._address,
            "listeners": f"http://127.0.0.1:{port}",
        }
        first = self._properties("worker", {**PLAIN, **listening, **conf})
        rest = [self._properties(name, {"name": name, **of}) for name, of in connectors.items()]
        log = self._folder / f"worker-{self._started}.log"
        main = f"org.apache.kafka.connect.cli.Connect{kind}"
        with program(self._path, main, [first, *rest], log) as started:
            yield Worker(started, port)

    def _properties(self, name: str, conf: Mapping[str, str]) -> str:
        place = self._folder / f"{name}-{self._started}.properties"
        place.write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
        return str(place)
