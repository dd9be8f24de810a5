"""demo/flights.py as a process, on a small file of the same columns."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

DEMO = Path(__file__).parents[2] / "demo" / "flights.py"
TIMEOUT_S = 200

HEAD = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,"
    "flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour\n"
)
ROW = (
    "2013,1,1,517,515,{dep},830,819,{arr},{carrier},1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01\n"
)


def flights() -> str:
    """300 flights: UA departs 2 late and arrives 10 late; AA 4 early, 1 late; HA never flies."""
    rows = {"UA": (2, 10), "AA": (-4, 1), "HA": ("NA", "NA")}
    body = "".join(
        ROW.format(dep=dep, arr=arr, carrier=carrier)
        for _ in range(100)
        for carrier, (dep, arr) in rows.items()
    )
    return HEAD + body


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(DEMO), *words], capture_output=True, text=True, timeout=TIMEOUT_S
    )


@pytest.mark.parametrize("packed", [False, True])
def test_the_demo_brings_every_flight_back_and_says_the_delays(
    tmp_path: Path, packed: bool
) -> None:
    path = tmp_path / "flights.csv"
    path.write_text(flights())
    if packed:
        with ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
            archive.write(path, "flights.csv")
        path = tmp_path / "flights.csv.zip"
    done = run("--flights", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    delays = {words[0]: words[1:5] for words in lines if words and words[0] in ("UA", "AA", "HA")}
    assert delays == {
        "UA": ["100", "0", "2.0", "10.0"],
        "AA": ["100", "0", "-4.0", "1.0"],
        "HA": ["100", "100", "-", "-"],
    }
    assert [words[0] for words in lines if words and words[0] == "ok"] == ["ok"] * 5


def test_a_limit_takes_the_first_rows_and_the_data_can_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv"
    path.write_text(flights())
    done = run("--flights", str(path), "--limit", "7", "--keep")
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "7 of 7 records came back" in text
    kept = Path(text.rpartition("kept: ")[2].replace(" ", ""))
    try:
        assert list(kept.glob("segbroker-data/topics/flights/partition_*/*.log"))
    finally:
        assert kept.name.startswith("segbroker-demo-")
        subprocess.run(["rm", "-r", str(kept)], check=True)


def test_an_empty_input_fails(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv"
    path.write_text(HEAD)
    done = run("--flights", str(path))
    assert done.returncode == 1
    assert "FAILED" in done.stdout
