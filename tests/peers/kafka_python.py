"""kafka-python's integration tests, out of its source distribution.

The distribution leaves out two small files that its fixtures import: the package marker of `test`
(without it the name means the standard library's) and test/service.py, which starts brokers.
Here nobody starts one: the address is given, so the latter is written as three lines.

The suite asks that the broker id be 0, that sessions of 3 s be allowed, and that the client infers
from the offered versions the release of Kafka that is named in KAFKA_VERSION.

Left out are the SSL and SASL modules: they start a Kafka from its distribution with certificates
of their own.  The client matrix (docs/compatibility.md) covers both.
"""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from ..support.daemon import running
from .places import Missing, cache, run, unfinished
from .verdicts import Outcome

VERSION = "3.0.12"
INFERRED_KAFKA = "4.3"
ONE_TEST_TIMEOUT_S = 60
# As Kafka is set up for it: rules can be made, and the file says what is advertised.
FLAGS = (
    *("--broker-id", "0"),
    *("--group-min-session-timeout-ms", "1000"),
    *("--authorizer", "acl", "--allow-everyone-if-no-acl-found"),
    *("--advertised-listeners", "PLAINTEXT://127.0.0.1:0"),
)
ALL_TIMEOUT_S = 900

SERVICE = '''"""An address is given: nothing to start, nothing to stop."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def stop(self): ...
    def dump_logs(self): ...
    def wait_for(self, pattern, timeout=None): return True


class SpawnedService:
    def __init__(self, *words, **named):
        raise RuntimeError("the address of the broker is given: nothing is started")
'''

OUTCOMES = {
    "PASSED": Outcome.PASSED,
    "SKIPPED": Outcome.SKIPPED,
    "XFAIL": Outcome.FAILED,
    "FAILED": Outcome.FAILED,
    "ERROR": Outcome.FAILED,
}
_LINE = re.compile(r"^test/integration/(\S+\.py::\S+) (PASSED|SKIPPED|XFAIL|FAILED|ERROR)")


def tests() -> Path:
    """The unpacked distribution.  Raises Missing."""
    place = cache() / f"kafka-python-{VERSION}"
    if not place.exists():
        cache().mkdir(parents=True, exist_ok=True)
        with unfinished(place) as work:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
            pip += ["--no-binary", ":all:", "--no-build-isolation"]
            run([*pip, f"kafka-python=={VERSION}"], work)
            (archive,) = work.glob("*.tar.gz")
            with tarfile.open(archive) as tar:
                tar.extractall(work, filter="data")
            archive.unlink()
            (inner,) = work.iterdir()
            (inner / "test" / "__init__.py").touch()
            (inner / "test" / "service.py").write_text(SERVICE)
    (inner,) = place.iterdir()
    return inner


def play(data: Path, words: list[str], log: Path) -> dict[str, Outcome]:
    """Run the suite, or the tests whose names hold one of `words`.

    Args:
        data: a folder for the daemon.
        words: parts of names; none for all.
        log: gets the output of the run.

    Returns:
        test -> how it ended, named as pytest names them, without the folder.
    """
    chosen = "not ssl and not sasl"
    if words:
        chosen = f"({' or '.join(words)}) and {chosen}"
    source = tests()
    with running(data, *FLAGS) as daemon:
        environment = {
            **os.environ,
            "KAFKA_URI": f"kafka://{daemon.address}",
            "KAFKA_VERSION": INFERRED_KAFKA,
            "KAFKA_ROOT": str(source),
        }
        environment.pop("ZOOKEEPER_URI", None)
        pytest = [sys.executable, "-m", "pytest", "test/integration", "-v", "-k", chosen]
        pytest += ["--timeout", str(ONE_TEST_TIMEOUT_S), "--timeout-method=signal"]
        pytest += ["-p", "no:cacheprovider", "-p", "no:segbroker"]
        with log.open("w") as sink:
            subprocess.run(
                pytest,
                cwd=source,
                env=environment,
                stdout=sink,
                stderr=subprocess.STDOUT,
                timeout=ALL_TIMEOUT_S,
            )
    outcomes = {}
    for line in log.read_text().splitlines():
        if (found := _LINE.match(line)) is not None:
            outcomes[found[1]] = OUTCOMES[found[2]]
    if not outcomes:
        raise Missing(f"no test ran; see {log}")
    return outcomes
