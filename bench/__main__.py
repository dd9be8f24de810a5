"""`python -m bench [--quick] [--write] [SCENARIO ...]`: run the scenarios, print the table."""

import argparse
import os
import sys
from importlib import import_module

from . import machine, report

SCENARIOS = ("librdkafka", "own_client", "durable", "latency", "storage", "spark")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, once")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    where = machine.describe()
    spin_before = machine.spin_rate()
    rows = []
    for name in options.scenarios or SCENARIOS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += import_module(f".{name}", __package__).rows(quick=options.quick)
    spin = (spin_before, machine.spin_rate())
    text = report.section(where, os.getloadavg()[0], spin, report.table(rows))
    print(text)
    if options.write:
        report.write(machine.ROOT / "docs" / "benchmarks.md", text)


if __name__ == "__main__":
    main()
