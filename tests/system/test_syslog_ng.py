"""syslog-ng as a producer, unmodified: lines of a file to topics, by its driver kafka-c().

It stands on librdkafka.  One topic is named by a template, of which the name is made for each line;
the other is written one line at a time, each acknowledged before the next.  syslog-ng remembers how
far it has read the file and keeps what it cannot send.
"""

from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL
from typing import Final

import pytest

from segbroker.client import Consumer

from ..support.daemon import Daemon, running
from ..support.program import Program, eventually
from ..support.tools import require

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(600)]

CONFIG: Final = """@version: 3.38
source s_file {{ file("{folder}/in.txt" flags(no-parse) follow-freq(1)); }};
destination d_named {{
  kafka-c(bootstrap-servers("{address}") topic("lines-$LEVEL") fallback-topic("lines-other")
    message("$MSG") config(queue.buffering.max.ms(50)));
}};
destination d_sync {{
  kafka-c(bootstrap-servers("{address}") topic("lines-sync") message("$MSG") sync-send(yes));
}};
log {{ source(s_file); destination(d_named); destination(d_sync); }};
"""
TOPICS: Final = ("lines-notice", "lines-sync")


def values(broker: Daemon, topic: str) -> set[str]:
    """What the topic holds."""
    with Consumer(broker.address, topic, stop_at_end=True) as consumer:
        return {(record.value or b"").decode() for record in consumer}


def test_every_line_arrives_though_the_broker_was_away(tmp_path: Path) -> None:
    program = require("syslog-ng", "syslog-ng-mod-rdkafka")
    lines = [f"line {n}" for n in range(400)]
    file = tmp_path / "in.txt"
    file.write_text("".join(f"{line}\n" for line in lines[:200]))
    with running(tmp_path / "data") as broker:
        config = tmp_path / "syslog-ng.conf"
        config.write_text(CONFIG.format(folder=tmp_path, address=broker.address))
        places = [("-f", "syslog-ng.conf"), ("-R", "persist"), ("-p", "pid"), ("-c", "control")]
        words = [word for flag, name in places for word in (flag, str(tmp_path / name))]

        def arrived(count: int) -> Callable[[], bool]:
            wanted = set(lines[:count])
            return lambda: all(values(broker, topic) >= wanted for topic in TOPICS)

        with Program([program, "-F", *words], tmp_path / "syslog-ng.log") as syslog:
            eventually(arrived(200), syslog)
            broker.stop(SIGKILL)
            with file.open("a") as more:
                more.writelines(f"{line}\n" for line in lines[200:])
            broker.again()
            eventually(arrived(400), syslog)
            syslog.terminate()
    assert not broker.events("unserved_request")
