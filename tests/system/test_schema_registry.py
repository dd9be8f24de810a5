"""A schema registry that keeps all it knows in a topic: Apicurio, with confluent's serializers.

Each instance writes what is registered to a journal topic and answers from what it has read of it,
from the first record on.  So an instance that is new, or was killed, knows what the others know;
and one whose broker was away goes on with it.  The clients speak Confluent's interface, which
Apicurio serves beside its own.
"""

import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Final

import pytest

from ..support.daemon import Daemon, start
from ..support.java import java
from ..support.kafka_program import CLIENTS
from ..support.ports import keep_port
from ..support.program import Program, eventually
from ..support.releases import Release, interpreter
from .maven_archive import unpacked

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

VERSION: Final = "3.0.9"
ARTIFACT: Final = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
SERIALIZERS: Final = Release(
    "2.12.2", ("confluent-kafka[avro,json,protobuf,schemaregistry]==2.12.2",)
)
WRITTEN: Final = 60


class Registry:
    """One instance, and its address."""

    def __init__(self, broker: str, place: Path, log: Path) -> None:
        port = keep_port()
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        (jar,) = place.glob("*-runner.jar")
        settings = {
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": broker,
            "quarkus.http.port": str(port),
            "quarkus.http.host": "127.0.0.1",
        }
        flags = [f"-D{key}={value}" for key, value in settings.items()]
        command = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", *flags]
        self.program = Program([*command, "-jar", str(jar)], log, what="Apicurio Registry")

    def answers(self) -> bool:
        """Whether it is ready: it is when it has read the journal."""
        return self._subjects() is not None

    def knows(self, subject: str) -> bool:
        return f'"{subject}"' in (self._subjects() or "")

    def _subjects(self) -> str | None:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=60) as reply:
                said: bytes = reply.read()
                return said.decode()
        except urllib.error.HTTPError as error:
            error.close()
            return None
        except OSError:
            return None


class Place:
    """A broker, registries on it, and who uses them."""

    def __init__(self, broker: Daemon, cache: Path, folder: Path) -> None:
        self.broker = broker
        self._registry = unpacked(ARTIFACT, cache)
        self._python = interpreter(SERIALIZERS, cache)
        self._folder = folder
        self._registries: list[Registry] = []

    def registry(self) -> Registry:
        """Start one more instance, and wait until it answers."""
        log = self._folder / f"registry-{len(self._registries)}.log"
        one = Registry(self.broker.address, self._registry, log)
        self._registries.append(one)
        eventually(one.answers, one.program)
        return one

    def use(self, registry: Registry, verb: str) -> int:
        """What the program of the serializers says."""
        command = [str(self._python), "-W", "ignore", str(CLIENTS / "registry_steps.py")]
        command += [registry.url, self.broker.address, verb]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, f"{run.stderr}\n{registry.program.state()}"
        return int(run.stdout.split()[-1])

    def close(self) -> None:
        for one in self._registries:
            one.program.close()


@pytest.fixture
def place(tmp_path: Path, release_cache: Path) -> Iterator[Place]:
    broker = start(tmp_path / "data")
    try:
        place = Place(broker, release_cache, tmp_path)
        try:
            yield place
        finally:
            place.close()
    finally:
        broker.stop()


def test_what_one_instance_was_told_every_other_knows_also_after_kills(place: Place) -> None:
    one = place.registry()
    assert place.use(one, "write") == WRITTEN
    two = place.registry()
    assert place.use(two, "read") == WRITTEN
    assert place.use(two, "grow") == 2

    one.program.kill()
    place.broker.stop(SIGKILL)
    place.broker.again()
    assert place.use(two, "write") == WRITTEN
    assert place.use(two, "read") == 2 * WRITTEN
    assert place.use(two, "grow") == 2

    again = place.registry()
    eventually(lambda: again.knows("protobuf-value"), again.program)
    assert place.use(again, "read") == 2 * WRITTEN
    assert place.use(again, "grow") == 2
