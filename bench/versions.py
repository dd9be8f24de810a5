"""Two versions of the broker beside each other; `python -m bench.versions PYTHON [ROUNDS]`.

PYTHON is the interpreter of a virtual environment in which the other version is installed, such as
that of a checkout of an older commit.  Both daemons run; the same produce requests go to one and
then to the other, who is first changes with each round.  Printed are the medians of the rounds:
processor time of the daemon for a request, acknowledgements per second, and their median latency.

Figures of two days, or of two machines, do not tell a slower version from a slower machine: this
does.
"""

import statistics
import sys
from contextlib import ExitStack
from typing import Final, NamedTuple

from .durable import VALUE_SIZE, run
from .machine import cpu_seconds
from .peers.ours import Segbroker
from .servers import segbroker

ROUNDS: Final = 5
SECONDS: Final = 1.5
# Connections, requests in flight on each, records in each request.
LOADS: Final = ((1, 1, 1), (32, 1, 1), (64, 1, 1), (50, 1, 20))


class Seen(NamedTuple):
    cpu_us: float
    """Processor time of the daemon for one request."""
    acks: float
    """Acknowledged records per second."""
    p50_ms: float


def _measured(broker: Segbroker, topic: str, load: tuple[int, int, int]) -> Seen:
    before = cpu_seconds(broker.pid)
    acks, latencies = run(broker, topic, *load, SECONDS)
    spent = cpu_seconds(broker.pid) - before
    return Seen(spent / (len(latencies) / load[2]) * 1e6, acks, statistics.median(latencies) * 1e3)


def _line(seen: list[Seen]) -> str:
    cpu_us, acks, p50_ms = (statistics.median(values) for values in zip(*seen, strict=True))
    return f"{cpu_us:6.0f} µs {acks:9,.0f}/s p50 {p50_ms:6.3f} ms"


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("python -m bench.versions PYTHON [ROUNDS]")
    rounds = int(sys.argv[2]) if len(sys.argv) == 3 else ROUNDS
    with ExitStack() as stack:
        brokers = []
        for interpreter in (sys.argv[1], sys.executable):
            server = stack.enter_context(segbroker(interpreter=interpreter))
            brokers.append(Segbroker(server.address, server.pid))
        sys.stdout.write(f"{VALUE_SIZE} B each{'':26}{'the other':35}this one\n")
        for durable in (True, False):
            pairs = [(broker, broker.create_topic(durable)) for broker in brokers]
            for load in LOADS:
                seen: list[list[Seen]] = [[], []]
                for number in range(rounds):
                    for which in (0, 1) if number % 2 == 0 else (1, 0):
                        seen[which].append(_measured(*pairs[which], load))
                name = (
                    f"{'fsync' if durable else 'disk'}, {load[0]} × {load[1]} requests of {load[2]}"
                )
                sys.stdout.write(f"{name:34} {_line(seen[0])}   {_line(seen[1])}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
