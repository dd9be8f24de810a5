"""rsyslog as a pipeline, unmodified: lines of a file to a topic (omkafka) and back (imkafka).

Both stand on librdkafka and name what they pass on to it: here TLS and SCRAM for one of two runs.
rsyslog keeps what it cannot send in a queue on its disk, so lines wait while the broker is away;
it delivers each at least once.
"""

from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Final

import pytest

from segbroker.client import Admin

from ..support.certificates import Authority
from ..support.daemon import start
from ..support.ports import keep_port
from ..support.program import Program, eventually
from ..support.tools import require

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(600)]

# Settings of rsyslog: a file that is watched, a topic, and a file that is written.
CONFIG: Final = """
global(workDirectory="{folder}/spool")
module(load="imfile" mode="polling" pollingInterval="1")
module(load="omkafka")
module(load="imkafka")
template(name="value" type="string" string="%rawmsg%")
template(name="line" type="string" string="%rawmsg%\\n")
input(type="imfile" file="{folder}/in.txt" tag="in" ruleset="send")
ruleset(name="send") {{
  action(type="omkafka" broker=["{address}"] topic="lines" template="value"
    resubmitOnFailure="on" keepFailedMessages="on" failedMsgFile="{folder}/spool/failed"
    confParam=["queue.buffering.max.ms=50"{security}]
    action.resumeRetryCount="-1" queue.type="LinkedList" queue.filename="unsent"
    queue.saveOnShutdown="on")
}}
input(type="imkafka" topic="lines" broker=["{address}"] consumergroup="rsyslog" ruleset="keep"
  confParam=["auto.offset.reset=earliest","session.timeout.ms=6000"{security}])
ruleset(name="keep") {{
  action(type="omfile" file="{folder}/out.txt" template="line")
}}
"""
USER: Final = "rsyslog"
PASSWORD: Final = "a long password"
LOGIN: Final = (
    "security.protocol=SASL_SSL",
    "sasl.mechanism=SCRAM-SHA-256",
    f"sasl.username={USER}",
    f"sasl.password={PASSWORD}",
)


class Pipeline:
    """A broker, an rsyslog on it, and the lines that were put into the file."""

    def __init__(self, folder: Path, *, secured: bool) -> None:
        self._folder = folder
        flags: tuple[str, ...] = ()
        if secured:
            authority = Authority(folder)
            guarded = f"127.0.0.1:{keep_port()}"
            listeners = f"PLAINTEXT://127.0.0.1:0,SASL_SSL://{guarded}"
            flags = ("--listeners", listeners, "--ssl-certificate", str(authority.server()))
        self.broker = start(folder / "data", *flags)
        address, security = self.broker.address, ""
        if secured:
            words = (*LOGIN, f"ssl.ca.location={authority.file}")
            address, security = guarded, "".join(f',"{word}"' for word in words)
        with Admin(self.broker.address) as admin:
            admin.create_topic("lines", partitions=1)
            if secured:
                admin.set_password(USER, PASSWORD)
        self._config = folder / "rsyslog.conf"
        self._config.write_text(CONFIG.format(folder=folder, address=address, security=security))
        (folder / "spool").mkdir()
        self.lines: list[str] = []
        (folder / "in.txt").touch()
        self.program = self._start()

    def _start(self) -> Program:
        pid = self._folder / "pid"
        pid.unlink(missing_ok=True)
        command = [require("rsyslogd", "rsyslog-kafka"), "-n"]
        command += ["-f", str(self._config), "-i", str(pid)]
        return Program(command, self._folder / "rsyslog.log")

    def put(self, count: int) -> None:
        """Append so many lines to the file."""
        fresh = [f"line {n}" for n in range(len(self.lines), len(self.lines) + count)]
        self.lines += fresh
        with (self._folder / "in.txt").open("a") as file:
            file.writelines(f"{line}\n" for line in fresh)

    def wait_until_written(self) -> None:
        """Wait until every line has come back."""
        eventually(lambda: set(self._written()) >= set(self.lines), self.program)

    def _written(self) -> list[str]:
        path = self._folder / "out.txt"
        return path.read_text().splitlines() if path.exists() else []

    def restart(self) -> None:
        """End rsyslog as a service manager does, and start it again."""
        self.program.terminate()
        self.program.close()
        self.program = self._start()

    def close(self) -> None:
        self.program.close()
        self.broker.stop()


@pytest.fixture(params=["plain", "tls-and-scram"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pipeline]:
    require("rsyslogd", "rsyslog-kafka")
    pipeline = Pipeline(tmp_path, secured=request.param != "plain")
    try:
        yield pipeline
    finally:
        pipeline.close()


def test_every_line_arrives_though_the_broker_was_away_and_rsyslog_started_again(
    pipeline: Pipeline,
) -> None:
    pipeline.put(200)
    pipeline.wait_until_written()
    pipeline.broker.stop(SIGKILL)
    pipeline.put(200)
    pipeline.broker.again()
    pipeline.wait_until_written()
    pipeline.restart()
    pipeline.put(200)
    pipeline.wait_until_written()
