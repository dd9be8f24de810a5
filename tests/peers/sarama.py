"""Sarama's functional tests, out of its module: those that want a cluster of brokers.

At home they have five brokers and a toxiproxy in front of each, by numbers of ports that stand in
their source.  Here one daemon is behind all five proxies, and tells its clients the address of the
first, so that what is done to that proxy is done to the broker (toxiproxy.py).  Topics of theirs
that have three replicas get one.  Nothing else is changed.

Tests that run Kafka's own programs in a container skip themselves where the brokers are somebody
else's.  One reads the log of a broker by `docker compose logs`: it gets the daemon's.
"""

import os
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from ..support.cutting_proxy import CuttingProxy
from ..support.daemon import running
from .go_suite import ends, fetch
from .places import Missing, go, run
from .toxiproxy import door
from .verdicts import Outcome

MODULE: Final = "github.com/IBM/sarama"
VERSION: Final = "v1.61.1"
# The newest that it names.
KAFKA_VERSION: Final = "4.1.0"
BINARY: Final = "sarama.test"
BROKERS: Final = 5
# As at home.
FLAGS: Final = ("--no-auto-create-topics", "--group-initial-rebalance-delay-ms", "0")
PORT: Final = "29090+i"
REPLICAS: Final = re.compile(r"ReplicationFactor: 3")
TIMEOUT_S: Final = 1_800

_TEST: Final = re.compile(r"^func (Test\w+)\(t ", re.MULTILINE)


def tests(source: Path) -> list[str]:
    """The functional ones."""
    files = sorted(source.glob("functional_*_test.go"))
    return sorted(test for file in files for test in _TEST.findall(file.read_text()))


def patch(main: Path, ports: list[int]) -> None:
    """What is changed; see above."""
    text = main.read_text()
    assert text.count(PORT) == 3, "the ports are not where they were"
    numbers = ", ".join(map(str, (0, *ports)))
    text = text.replace(PORT, f"[]int{{{numbers}}}[i]")
    text, count = REPLICAS.subn("ReplicationFactor: 1", text)
    assert count, "the topics are not as they were"
    main.write_text(text)


def play(folder: Path, words: list[str]) -> dict[str, Outcome]:
    """Run the suite, or the tests whose names hold one of `words`.

    Args:
        folder: gets the source, the data of the daemon, and the output.
        words: parts of names; none for all.

    Returns:
        test -> how it ended; a part of a test has a name of its own, as Go gives it.
    """
    source, output, programs = folder / "source", folder / "output", folder / "programs"
    fetch(MODULE, VERSION, source)
    chosen = [test for test in tests(source) if not words or any(one in test for one in words)]
    if not chosen:
        raise Missing("no test of that name")
    with ExitStack() as stack:
        proxies = {
            f"kafka{number}": stack.enter_context(CuttingProxy(("127.0.0.1", 0)))
            for number in range(1, BROKERS + 1)
        }
        first = proxies["kafka1"].address
        daemon = stack.enter_context(running(folder / "data", "--advertised", first, *FLAGS))
        for proxy in proxies.values():
            proxy.target = daemon.host_and_port
        ports = [int(proxy.address.rpartition(":")[2]) for proxy in proxies.values()]
        patch(source / "functional_test.go", ports)
        run([go(), "test", "-mod=mod", "-tags", "functional", "-c", "-o", BINARY, "."], source)
        programs.mkdir()
        script = programs / "docker"
        script.write_text(f"#!/bin/sh\nexec cat '{daemon.log}'\n")
        script.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TOXIPROXY_ADDR": stack.enter_context(door(proxies)),
            "KAFKA_VERSION": KAFKA_VERSION,
        }
        # It ends by itself at its limit, and says then where each of its threads is.
        command = [f"./{BINARY}", "-test.v", f"-test.run=^({'|'.join(chosen)})$"]
        command += [f"-test.timeout={TIMEOUT_S}s"]
        with output.open("w") as sink:
            subprocess.run(
                command,
                cwd=source,
                env=environment,
                stdout=sink,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S + 60,
            )
    return ends(chosen, output.read_text())
