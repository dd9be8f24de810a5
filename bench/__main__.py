"""`python -m bench [--quick] [--write] [SCENARIO ...]`: run the scenarios, print the tables."""

import argparse
import logging
import os
import signal
import sys
import time
import traceback
from importlib import import_module

import structlog

from . import machine, report

SCENARIOS = {
    "librdkafka": "One librdkafka client: us and librdkafka's own mock broker",
    "throughput": "Throughput beside other brokers",
    "durable": "Durable acknowledgements",
    "slow_disk": "Durable acknowledgements on a disk that takes its time",
    "wal": "The write-ahead log beside a sync of each segment",
    "latency": "End to end at 1,000 records/s",
    "fan_out": "One producer, eight consumers",
    "own_client": "Python clients on the same broker",
    "interrupts": "Ctrl-C, cancellation, and a broker that is away",
    "storage": "The storage engine alone",
    "recovery": "Starts after a SIGKILL",
    "groups": "Consumer groups",
    "scale": "Many connections, partitions, slow readers",
    "shares": "Share groups",
    "topics": "Clients of thousands of topics",
    "spark": "The Spark source into noop",
}


def main() -> None:
    names = ", ".join(SCENARIOS)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=names)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, once")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {names}")
    # A kill ends the servers too: their blocks are left as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The storage engine runs in this process too, and its log is not for standard output.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    where = machine.describe()
    spin_before = machine.spin_rate()
    tables, failed = [], []
    for name in options.scenarios or SCENARIOS:
        began, load = time.monotonic(), os.getloadavg()[0]
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            entries = import_module(f".{name}", __package__).rows(quick=options.quick)
        except Exception as exc:  # the other scenarios are still worth having
            traceback.print_exc()
            failed.append(name)
            entries = [report.Note(f"failed: {type(exc).__name__}: {exc}")]
        took = time.monotonic() - began
        heading = (
            f"### {SCENARIOS[name]}\n\n`{name}`, {took:.0f} s; load average before it {load:.1f}."
        )
        tables.append(f"{heading}\n\n{report.table(entries)}")
        print(f"{name} took {took:.0f} s", file=sys.stderr, flush=True)
    spin = (spin_before, machine.spin_rate())
    command = " ".join(["python -m bench", *sys.argv[1:]])
    text = report.section(where, os.getloadavg()[0], spin, "\n\n".join(tables), command=command)
    if options.write:
        report.write(machine.ROOT / "docs" / "benchmarks.md", text)
    print(text)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
