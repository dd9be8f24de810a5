"""Daemons for a program that starts and ends brokers itself, as Kafka's own tests do.

A program in another language asks over a socket of this machine, with one line of JSON a
connection; it is answered by one line, `{"error": ...}` when it cannot be done.

    {"do": "start", "test": NAME, "broker": {"node": 0, "properties": {...}, "listeners": [...]}}
        -> {"handle": H, "ports": {LISTENER: PORT}, "client": {...}}
    {"do": "stop", "handle": H}     ended by SIGTERM; -> {}
    {"do": "again", "handle": H}    the same data, ports and settings; -> {}
    {"do": "count", "handle": H, "event": E}    how often its log tells of it; -> {"count": N}
    {"do": "end", "handle": H}      ended, and its log and data put away under the test's name

`fronts`, LISTENER: PORT, are where clients of a listener are told to connect, if not there.
`properties` are Kafka's; those that a setting of ours is named after are handed to the daemon.
`pem`, beside them, is the path of a file with the key and the certificate of listeners with TLS,
`ca` of one with those that may sign certificates of clients; `super_user` may do everything.
`client` are the properties of a client that may do everything, on a listener of its own.

A daemon that ends otherwise than it should, or logs an error, is told at the end: no test of
theirs looks there.
"""

import json
import secrets
import shutil
import socketserver
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Final

from segbroker.broker.configuration.config import keys
from segbroker.protocol.sasl import PLAIN
from segbroker.protocol.scram import MECHANISMS

from ..support.daemon import Daemon, log_of, start
from ..support.ports import port_of

# A test's clients are gone before a port comes round again.
SLOTS: Final = 16
OWN_LISTENER: Final = "HARNESS"
OWN_USER: Final = "harness"
OWN_MECHANISM: Final = "SCRAM-SHA-256"

# What is decided here, or has another form there.  Topics can be deleted whatever a test sets:
# Kafka's harness makes one before each test that ours takes away (MirroredMetadata.scala).
NOT_HANDED_ON: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "delete.topic.enable",
        "listener.security.protocol.map",
        "listeners",
        "log.cleaner.dedupe.buffer.size",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.truststore.location",
    }
)

# How often Kafka looks for what has expired, of each kind; here it is one round for all.  Where
# a test says nothing it is as seldom as Kafka's shortest: tests list groups that are empty.
KAFKAS_ROUND_MS: Final = 10_000
ROUNDS: Final = (
    "producer.id.expiration.check.interval.ms",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
)

# A connection may be silent for as long before its first request as behind it, as in Kafka: tests
# open some and use them one after the other.
KAFKAS_IDLE_MS: Final = 600_000


def settings(properties: Mapping[str, str]) -> dict[str, int | bool | str]:
    """Our settings that these of Kafka's stand for, by our names, as near as ours allow."""
    found: dict[str, int | bool | str] = {}
    for spec in keys():
        text = properties.get(spec.metadata["kafka"] or "")
        if text is None or spec.metadata["kafka"] in NOT_HANDED_ON:
            continue
        default = spec.default if spec.default is not MISSING else ""
        if isinstance(default, bool):
            found[spec.name] = text == "true"
        elif isinstance(default, int):
            least, most = spec.metadata["least"], spec.metadata["most"]
            found[spec.name] = min(max(int(text), least), most)
        else:
            found[spec.name] = text
    if properties.get("ssl.enabled.protocols") == "TLSv1.3":
        found["ssl_version_min"] = "TLSv1.3"
    if offered := properties.get("sasl.enabled.mechanisms"):
        found["sasl_mechanisms"] = _mechanisms(offered)
    rounds = [int(properties[name]) for name in ROUNDS if name in properties]
    found["housekeeping_interval_ms"] = min([KAFKAS_ROUND_MS, *rounds])
    return found


def _mechanisms(offered: str) -> str:
    """Those that there are here, and what the harness logs in by."""
    both = [one for one in offered.split(",") if one in (PLAIN, *MECHANISMS)]
    return ",".join(dict.fromkeys([*both, OWN_MECHANISM]))


def _count(log: Path, event: str) -> int:
    with log.open() as lines:
        return sum(json.loads(line).get("event") == event for line in lines if line[:1] == "{")


class Door:
    """The daemons that were asked for.

    Attributes:
        port: where to ask.
        faults: test -> what its daemon did that no daemon should.
    """

    def __init__(self, folder: Path) -> None:
        self.port = 0
        self.faults: dict[str, str] = {}
        self._folder = folder
        self._free = deque(folder / f"slot-{number}" for number in range(SLOTS))
        self._daemons: dict[str, tuple[str, Daemon]] = {}
        self._count = 0
        self._lock = threading.Lock()

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Do what is asked; one thing at a time."""
        with self._lock:
            if asked["do"] == "start":
                return self._start(asked["test"], asked["broker"])
            test, daemon = self._daemons[asked["handle"]]
            if asked["do"] == "count":
                return {"count": _count(log_of(daemon.data), asked["event"])}
            if asked["do"] == "again":
                daemon.again()
            else:
                self._stop(test, daemon)
            if asked["do"] == "end":
                del self._daemons[asked["handle"]]
                self._put_away(asked["handle"], test, daemon)
            return {}

    def close(self) -> None:
        """End what a program that ended early has left running."""
        for handle in list(self._daemons):
            self.answer({"do": "end", "handle": handle})

    def _start(self, test: str, broker: Mapping[str, Any]) -> dict[str, Any]:
        self._count += 1
        handle = f"{self._count:04}-{test}"
        data = self._free.popleft()
        data.mkdir()
        wanted = settings(broker["properties"])
        is_guarded = bool(broker["properties"].get("authorizer.class.name"))
        listeners = {one["name"]: one["protocol"] for one in broker["listeners"]}
        listeners[OWN_LISTENER] = "SASL_PLAINTEXT" if is_guarded else "PLAINTEXT"
        # Who is in front of a listener says who its clients are.
        fronts = broker.get("fronts", {})
        listeners |= dict.fromkeys(fronts, "SASL_PLAINTEXT")
        ports = {name: port_of((data, place)) for place, name in enumerate(listeners)}
        password = secrets.token_urlsafe(12)
        wanted |= {
            "listeners": ",".join(f"{name}://localhost:{port}" for name, port in ports.items()),
            "listener_security_protocol_map": ",".join(
                f"{name}:{protocol}" for name, protocol in listeners.items()
            ),
            "broker_id": int(broker["node"]),
            "handshake_timeout_ms": KAFKAS_IDLE_MS,
            "advertised_listeners": ",".join(
                f"{name}://localhost:{port}" for name, port in fronts.items()
            ),
        }
        if pem := broker.get("pem"):
            wanted["ssl_certificate"] = pem
        if ca := broker.get("ca"):
            wanted["ssl_ca"] = ca
        if is_guarded:
            supers = (str(wanted.get("super_users", "")), broker.get("super_user"))
            wanted |= {
                "authorizer": "acl",
                "super_users": ";".join(filter(None, (*supers, f"User:{OWN_USER}"))),
                "initial_user": OWN_USER,
                "initial_password": password,
            }
        config = data / "harness.toml"
        config.write_text("".join(f"{key} = {json.dumps(it)}\n" for key, it in wanted.items()))
        daemon = start(data, "--config", str(config))
        self._daemons[handle] = (test, daemon)
        client = {"bootstrap.servers": f"localhost:{ports[OWN_LISTENER]}"}
        if is_guarded:
            client |= {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": OWN_MECHANISM,
                "sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required "
                    f'username="{OWN_USER}" password="{password}";'
                ),
            }
        return {"handle": handle, "ports": ports, "client": client}

    def _stop(self, test: str, daemon: Daemon) -> None:
        if (code := daemon.stop()) != 0:
            self.faults[test] = f"ended with {code}"

    def _put_away(self, handle: str, test: str, daemon: Daemon) -> None:
        log = self._folder / f"{handle}.log"
        log_of(daemon.data).rename(log)
        for line in log.read_text().splitlines():
            if '"level": "error"' in line or '"level": "critical"' in line or "Traceback" in line:
                self.faults[test] = line
        shutil.rmtree(daemon.data)
        self._free.append(daemon.data)


@contextmanager
def door(folder: Path) -> Iterator[Door]:
    """Answer until the block ends.

    folder: gets the logs of the daemons, and their data while they run.
    """
    doors = Door(folder)

    class Caller(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                said = doors.answer(json.loads(self.rfile.readline()))
            except Exception as exc:  # told to whoever asked, whose test fails
                said = {"error": f"{type(exc).__name__}: {exc}"}
            self.wfile.write(json.dumps(said).encode() + b"\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Caller) as server:
        server.daemon_threads = True
        doors.port = server.server_address[1]
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield doors
        finally:
            server.shutdown()
            serving.join()
            doors.close()
