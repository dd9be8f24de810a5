"""The pipelines, through the command line, in the session that the folder shares.

The command makes and stops a session of its own; here it is given the shared one, which stays.
"""

import csv
import io
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from segbroker.cli.main import segbroker
from segbroker.cli.spark import INTERVAL
from segbroker.protocol.record_batch import GapReason, gap_batches
from segbroker.spark.checkpoints import beside, of_replay
from segbroker.spark.planning import Planner
from segbroker.testing.embedded import EmbeddedBroker

from ..batches import batch
from ..scripted_broker import TOPIC, ScriptedBroker, fetched
from ..topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Name = Callable[[], str]

PROGRAM = [sys.executable, "-m", "segbroker.cli"]


class Lent:
    """A session that does not stop when it is told to."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> object:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


class Command:
    """`segbroker spark ...`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *words: str) -> str:
        """Its standard output."""
        result = CliRunner().invoke(segbroker, ["spark", *words, "-b", self.bootstrap])
        assert result.exit_code == 0, (result.stderr, result.exception)
        self.said = result.stderr
        return result.stdout

    def refused(self, *words: str, code: int | None = None) -> str:
        result = CliRunner().invoke(segbroker, ["spark", *words, "-b", self.bootstrap])
        assert result.exit_code in ((2, 6) if code is None else (code,)), result.stderr
        return result.stderr


@pytest.fixture
def command(spark: "SparkSession", bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    def lend(conf: Mapping[str, str] | None = None) -> Lent:
        return Lent(spark)

    monkeypatch.setattr("segbroker.spark.session", lend)
    return Command(bootstrap)


def flights(count: int) -> list[bytes]:
    rows = [{"carrier": "UA" if n % 3 else "AA", "delay": n} for n in range(count)]
    return [json.dumps(row).encode() for row in rows]


def test_an_export_takes_what_is_new_and_an_import_sends_each_file_once(
    command: Command, topics: Topics, name: Name, tmp_path: Path
) -> None:
    topic, again = name(), name()
    topics.create(topic, 2)
    topics.create(again)
    day_ms = 86_400_000
    times = {0: 1_700_000_000_000, 1: 1_700_000_000_000 + day_ms}
    topics.produce(topic, [b"one", b"two"], key=b"k", timestamps_ms=times)
    folder = str(tmp_path / "lake")
    command("export", topic, "--to", folder)
    assert "batch 0: 2 rows" in command.said
    assert "exported 2 records" in command.said
    topics.produce(topic, [b"three"], partition=1, timestamps_ms=times)
    command("export", topic, "--to", folder)
    assert "exported 1 record of" in command.said
    dates = sorted(path.name for path in (tmp_path / "lake").glob("date=*"))
    assert dates == ["date=2023-11-14", "date=2023-11-15"]
    command("import", folder, "--topic", again)
    assert sorted(row.value or b"" for row in topics.read(again, 3)) == [b"one", b"three", b"two"]
    assert sorted(row.key or b"" for row in topics.read(again, 3)) == [b"", b"k", b"k"]
    command("import", folder, "--topic", again)
    assert "imported 0 rows" in command.said


RECORDS: list[bytes | None] = [
    b"plain",
    b" blanks around ",
    b"two\nlines",
    b"and\r\ntwo more",
    b"",
    None,
    b'quo"ted, "comma',
    b"back\\slash\\",
    b'"\\","',
    b"# no remark",
]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_what_an_export_wrote_an_import_sends_as_it_was(
    command: Command, topics: Topics, topic: str, target: str, tmp_path: Path, form: str
) -> None:
    topics.produce(topic, RECORDS, key=b" key ")
    headers: list[tuple[str, bytes | None]] = [("h", b"\xff\0"), ("n", None), ("h", b"")]
    topics.produce(topic, [b"with headers"], headers=[*headers])
    folder = str(tmp_path / "lake")
    command("export", topic, "--to", folder, "--format", form)
    command("import", folder, "--topic", target, "--format", form)
    *found, last = topics.read(target, len(RECORDS) + 1)
    assert [(row.key, row.value) for row in found] == [(b" key ", value) for value in RECORDS]
    assert not any(row.headers for row in found)
    assert (last.value, last.headers) == (b"with headers", [] if form == "csv" else headers)


def test_folders_are_named_by_the_date_in_utc_whatever_the_session_and_the_fields_are(
    command: Command, spark: "SparkSession", topics: Topics, topic: str, tmp_path: Path
) -> None:
    noon_ms = 1_700_049_600_000
    values = [b'{"Date": "a field", "n": 1}', b'{"Date": "another", "n": 2}']
    topics.produce(topic, values, timestamps_ms={0: noon_ms, 1: noon_ms + 1})
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    try:
        command("export", topic, "--to", str(tmp_path / "text"))
        command("export", topic, "--to", str(tmp_path / "json"), "--values", "json")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert [path.name for path in (tmp_path / "text").glob("*=*")] == ["date=2023-11-15"]
    assert [path.name for path in (tmp_path / "json").glob("*=*")] == ["record_date=2023-11-15"]


def test_all_files_of_an_export_are_in_folders_of_one_name(
    command: Command, topics: Topics, topic: str, target: str, tmp_path: Path
) -> None:
    times = {0: 1_700_049_600_000}
    lost, gained = tmp_path / "lost", tmp_path / "gained"
    # A field `date` that later values do not have: Spark reads no path with folders of two names.
    topics.produce(topic, [b'{"n": 1}'], timestamps_ms=times)
    command("export", topic, "--to", str(lost), "--values", "date STRING, n INT")
    command("export", topic, "--to", str(gained), "--values", "json")
    topics.produce(topic, [b'{"n": 2, "date": "a field"}'], timestamps_ms=times)
    command("export", topic, "--to", str(lost), "--values", "n INT")
    assert "exported 1 record of" in command.said
    assert [path.name for path in lost.glob("*=*")] == ["record_date=2023-11-15"]
    command("import", str(lost), "--topic", target)
    assert "imported 2 rows" in command.said
    # One that only later values have: both cannot be there.
    said = command.refused("export", topic, "--to", str(gained), "--values", "json", code=2)
    assert f"the files in {gained} are in folders date=..., and the values have a field" in said
    assert "--values" in said
    assert [path.name for path in gained.glob("*=*")] == ["date=2023-11-15"]
    command("export", topic, "--to", str(gained), "--values", "n INT")
    assert "exported 1 record of" in command.said
    assert [path.name for path in gained.glob("*=*")] == ["date=2023-11-15"]


def test_a_field_with_the_name_of_the_folders_is_kept(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    times = {0: 1_700_049_600_000}
    # As an import of an export has them.
    topics.produce(topic, [b'{"date": "a", "record_date": "b", "n": 1}'], timestamps_ms=times)
    command("export", topic, "--to", str(tmp_path), "--format", "json", "--values", "json")
    (file,) = tmp_path.glob("*=*/*.json")
    row = json.loads(file.read_text())
    assert (row["date"], row["record_date"], row["n"]) == ("a", "b", 1)
    assert file.parent.name == "record_record_date=2023-11-15"


def test_fields_with_the_names_of_the_records_columns_are_kept_beside_them(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    # As an import of an export has them; the names of columns have no case.
    fields = {"_Key": "a", "_offset": 77, "_timestamp": "b", "record_offset": 78, "n": 1}
    times = {0: 1_700_049_600_000}
    topics.produce(topic, [json.dumps(fields).encode()], key=b"k", timestamps_ms=times)
    query = f"SELECT record_key, _offset, record_record_offset AS at, n FROM topic('{topic}')"
    found = json.loads(command("sql", query, "--format", "json"))
    assert found == {"record_key": "k", "_offset": 77, "at": 0, "n": 1}
    command("export", topic, "--to", str(tmp_path), "--format", "json", "--values", "json")
    (file,) = tmp_path.glob("date=2023-11-15/*.json")
    row = json.loads(file.read_text())
    assert {key: row[key] for key in fields} == fields
    assert (row["record_key"], row["_topic"], row["record_record_offset"]) == ("k", topic, 0)


def test_a_column_of_the_record_has_one_name_in_all_files_of_an_export(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    lost, gained = tmp_path / "lost", tmp_path / "gained"
    topics.produce(topic, [b'{"n": 1}'], key=b"k")
    command("export", topic, "--to", str(lost), "--format", "json", "--values", "_key STRING")
    command("export", topic, "--to", str(gained), "--values", "json")
    topics.produce(topic, [b'{"n": 2, "_key": "a field"}'], key=b"k")
    # A field that is not asked for any more: what was `record_key` stays so.
    command("export", topic, "--to", str(lost), "--format", "json", "--values", "n INT")
    rows = [json.loads(file.read_text()) for file in lost.glob("*=*/*.json")]
    assert [row["record_key"] for row in rows] == ["k", "k"]
    assert not any("_key" in row for row in rows)
    # One that the values have gained: `_key` would be the record's in some files only.
    said = command.refused("export", topic, "--to", str(gained), "--values", "json", code=2)
    assert "column '_key'" in said
    assert "--values" in said
    command("export", topic, "--to", str(gained), "--values", "n INT")
    tables = [pyarrow.parquet.read_table(file) for file in gained.glob("*=*/*.parquet")]
    assert [table["_key"].to_pylist() for table in tables] == [["k"], ["k"]]


NO_NUMBERS = [b"no JSON", b'{"n": 2', b'{"n": "three"}', b'{"n": 4.5}', b"[5]", b"6"]


@pytest.mark.parametrize(
    ("form", "first", "column"),
    [
        ("n INT", b'{"n": 1}', "_value"),
        ("n INT, _corrupt_record STRING", b'{"n": 1}', "_corrupt_record"),
        ("json", b'{"n": 1, "_corrupt_record": "a field"}', "_value"),
        ("json", b'{"n": 1, "_value": "a field"}', "record_value"),
    ],
)
def test_a_value_that_is_not_what_the_columns_say_is_exported_as_text(
    command: Command,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    form: str,
    first: bytes,
    column: str,
) -> None:
    # All that a sample sees are objects.
    topics.produce(topic, [first] * 1000)
    topics.produce(topic, [*NO_NUMBERS, b"", None])
    topics.produce(topic, [first] * 1000)
    command("export", topic, "--to", str(tmp_path), "--format", "json", "--values", form)
    lines = [line for file in tmp_path.glob("*=*/*.json") for line in file.read_text().splitlines()]
    rows = sorted(map(json.loads, lines), key=lambda row: row["_offset"])
    assert len(rows) == 2000 + len(NO_NUMBERS) + 2
    odd = [row.get(column) for row in rows[1000:-1000]]
    empty = None if "_corrupt" in form else ""  # as Spark has it
    assert odd == [*(value.decode() for value in NO_NUMBERS), empty, None]
    assert [row["n"] for row in rows if "n" in row] == [1] * 2000
    assert {row.get("_corrupt_record") for row in rows[:1000]} == {
        json.loads(first).get("_corrupt_record")
    }


def test_columns_by_a_sample_are_those_of_the_newest_records_too(
    command: Command, topics: Topics, name: Name, tmp_path: Path
) -> None:
    """As what came since the last run of an export has them."""
    topic = name()
    topics.create(topic, 2)
    topics.produce(topic, [b'{"n": 1}'] * 1100)
    to = ("--to", str(tmp_path), "--format", "json", "--values", "json")
    command("export", topic, *to)
    topics.produce(topic, [b'{"n": 2, "later": "x"}'], partition=1)
    command("export", topic, *to)
    lines = [line for file in tmp_path.glob("*=*/*.json") for line in file.read_text().splitlines()]
    assert [row["later"] for row in map(json.loads, lines) if row["n"] == 2] == ["x"]
    query = f"SELECT n FROM topic('{topic}') WHERE later = 'x'"
    assert json.loads(command("sql", query, "--format", "json")) == {"n": 2}


def test_an_error_of_a_query_is_told_once_and_without_the_stack_of_the_jvm(
    command: Command, topic: str, spark: "SparkSession"
) -> None:
    logged = io.StringIO()
    by_pyspark = logging.StreamHandler(logged)
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addHandler(by_pyspark)
    try:
        said = command.refused("sql", f"SELECT nope FROM topic('{topic}')")
        assert logged.getvalue() == ""
        with pytest.raises(AnalysisException, match="nope"):
            spark.sql("SELECT nope")
        assert "nope" in logged.getvalue(), "programs see what PySpark logs"
    finally:
        logger.removeHandler(by_pyspark)
    assert said.startswith("Error: [UNRESOLVED_COLUMN")
    assert "org.apache.spark" not in said


@pytest.mark.parametrize("form", ["MAP<STRING, INT>", "ARRAY<STRUCT<n: INT>>"])
def test_a_form_of_values_without_columns_is_refused_in_a_sentence(
    command: Command, topic: str, tmp_path: Path, form: str
) -> None:
    said = f"Error: {form} has no columns: say 'carrier STRING, n INT', json or text"
    to = ("--to", str(tmp_path / "lake"), "--format", "json")
    assert said in command.refused("export", topic, *to, "--values", form)
    assert said in command.refused("sql", f"SELECT * FROM topic('{topic}', '{form}')")


def test_fields_in_fields_may_have_any_name(command: Command, topics: Topics, topic: str) -> None:
    topics.produce(topic, [b'{"headers": {"user-agent": "curl", "a b": {"c:d": 7}}, "q`t": 1}'])
    query = f"SELECT headers.`user-agent` AS agent, headers.`a b`.`c:d` AS n FROM topic('{topic}')"
    assert json.loads(command("sql", query, "--format", "json")) == {"agent": "curl", "n": 7}


@pytest.mark.parametrize("one", ["people.csv", "people"])
def test_one_file_is_imported_once_and_its_neighbours_are_not(
    command: Command, topics: Topics, topic: str, tmp_path: Path, one: str
) -> None:
    (tmp_path / one).write_text("id,name\n1,Ada\n2,Bob\n")
    (tmp_path / "people.csv2").write_text("id,name\n3,Eve\n")
    (tmp_path / "peoplezcsv").write_text("id,name\n4,Zoe\n")
    file = str(tmp_path / one)
    for said in ("imported 2 rows", "imported 0 rows"):
        command("import", file, "--topic", topic, "--format", "csv", "--key", "id")
        assert said in command.said
    found = topics.read(topic, 2)
    assert [(row.key, json.loads(row.value or b"")) for row in found] == [
        (b"1", {"id": "1", "name": "Ada"}),
        (b"2", {"id": "2", "name": "Bob"}),
    ]


def test_a_pattern_of_folders_is_imported_once_by_each_checkpoint(
    command: Command, topics: Topics, topic: str, target: str, tmp_path: Path
) -> None:
    """Of an export's folders: the rows are the records, without the column of the folders, too."""
    times = {n: 1_700_000_000_000 + n * 86_400_000 for n in range(3)}
    topics.produce(topic, [b"one", b"two", b"three"], key=b"k", timestamps_ms=times)
    folder = tmp_path / "lake"
    command("export", topic, "--to", str(folder))
    days = str(folder / "date=2023-11-1[45]*")
    for more, said in (
        ([], "imported 2 rows"),
        ([], "imported 0 rows"),
        (["--checkpoint", str(tmp_path / "own")], "imported 2 rows"),
        (["--checkpoint", str(tmp_path / "own")], "imported 0 rows"),
    ):
        command("import", days, "--topic", target, *more)
        assert said in command.said
    found = [(row.key, row.value) for row in topics.read(target, 4)]
    assert sorted(found) == [(b"k", b"one")] * 2 + [(b"k", b"two")] * 2
    assert (tmp_path / "own" / "metadata").is_file()
    (place,) = (folder / "_segbroker").glob(f"import-{target}-*")
    assert place.name.endswith("-date=2023-11-1[45]+")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_rows_that_happen_to_have_a_value_are_not_taken_for_records(
    command: Command, topics: Topics, topic: str, tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "readings"
    folder.mkdir()
    if form == "csv":
        (folder / "of-today.csv").write_text("sensor,value\nkitchen,21.5\n")
    else:
        (folder / "of-today.json").write_text('{"sensor": "kitchen", "value": "21.5"}\n')
    command("import", str(folder), "--topic", topic, "--format", form, "--key", "sensor")
    (row,) = topics.read(topic, 1)
    assert row.key == b"kitchen"
    assert json.loads(row.value or b"") == {"sensor": "kitchen", "value": "21.5"}


def test_an_import_sends_the_columns_of_all_files(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """As an export has them whose values gained fields between two runs."""
    rows = [{"a": 1}, {"a": 2, "b": "x"}, {"a": 3, "c": 0.5}]
    for n, row in enumerate(rows):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / f"{n}.parquet")
    command("import", str(tmp_path), "--topic", topic)
    found = [json.loads(row.value or b"") for row in topics.read(topic, len(rows))]
    assert sorted(found, key=lambda row: row["a"]) == rows


def test_files_whose_columns_cannot_be_those_of_one_frame_are_refused_in_a_sentence(
    command: Command, topic: str, tmp_path: Path
) -> None:
    for n, value in enumerate([1, "one"]):
        table = pyarrow.Table.from_pylist([{"a": value}])
        pyarrow.parquet.write_table(table, tmp_path / f"{n}.parquet")
    said = command.refused("import", str(tmp_path), "--topic", topic, code=6)
    (line,) = said.strip().splitlines()
    assert f"the files in {tmp_path} have columns of one name and of different types: " in line
    assert '"STRUCT<a: BIGINT>"' in line
    assert '"STRUCT<a: STRING>"' in line


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["a,b\n1,2\n", "b,a\n3,4\n"], "header"),
        (["a\n1\n", "a,b\n1,2\n"], "header"),
        (["a,b\n1,2\n3,4,5\n"], "3,4,5"),
        (["a,b\n1,2\n3\n"], "3"),
        (["a\n1\n", "a,\n" + 1000 * "1,2\n"], "header"),
        (['a,b\n"say \\"hi\\"",2\n'], "nescaped quote"),
    ],
)
def test_csv_whose_values_would_go_to_other_columns_or_nowhere_is_refused(
    command: Command, topics: Topics, topic: str, tmp_path: Path, texts: list[str], reason: str
) -> None:
    for n, text in enumerate(texts):
        (tmp_path / f"{n}.csv").write_text(text)
    said = command.refused("import", str(tmp_path), "--topic", topic, "--format", "csv", code=6)
    last = said.strip().splitlines()[-1]
    assert ".csv cannot be read: " in last
    assert reason in last.partition(".csv cannot be read: ")[2]
    for file in tmp_path.glob("*.csv"):
        file.write_text("a,b\n1,2\n")
    command("import", str(tmp_path), "--topic", topic, "--format", "csv")
    found = [json.loads(row.value or b"") for row in topics.read(topic, len(texts))]
    assert found == [{"a": "1", "b": "2"}] * len(texts)


def test_json_that_cannot_be_read_ends_the_import_and_leaves_nothing_out(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """As the last line of a program that was killed."""
    (tmp_path / "0.json").write_text('{"a": 1}\n\n{"a": 2, "_corrupt_record": "a field"}\n')
    torn = tmp_path / "1.json"
    torn.write_text('{"a": 3}\n{"a": 4, "b": "x')
    words = ["import", str(tmp_path), "--topic", topic, "--format", "json"]
    said = command.refused(*words, code=6)
    assert "1.json cannot be read: " in said.strip().splitlines()[-1]
    torn.write_text('{"a": 3}\n{"a": 4, "b": "x"}\n')
    command(*words)
    found = [json.loads(row.value or b"") for row in topics.read(topic, 4)]
    assert sorted(found, key=lambda row: row["a"]) == [
        {"a": 1},
        {"a": 2, "_corrupt_record": "a field"},
        {"a": 3},
        {"a": 4, "b": "x"},
    ]


def test_csv_may_have_empty_lines_fields_and_files(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "0.csv").write_text('a,b\n1,2\n\n,"x"\n"y,",\n\n')
    (tmp_path / "1.csv").write_text("")
    (tmp_path / "2.csv").write_text("a,b\n")
    command("import", str(tmp_path), "--topic", topic, "--format", "csv")
    found = [json.loads(row.value or b"") for row in topics.read(topic, 3)]
    assert found == [{"a": "1", "b": "2"}, {"b": "x"}, {"a": "y,"}]


def test_csv_may_have_a_column_without_a_name(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """As data frames are written with their index: Spark calls it by its place."""
    for n, day in enumerate(["2026-01-01", "__HIVE_DEFAULT_PARTITION__"]):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        (folder / f"{n}.csv").write_text(f",b\n{n},x\n")
    command("import", str(tmp_path), "--topic", topic, "--format", "csv", "--key", "_c0")
    found = sorted((row.key, json.loads(row.value or b"")) for row in topics.read(topic, 2))
    rows = [{"_c0": "0", "b": "x", "day": "2026-01-01"}, {"_c0": "1", "b": "x"}]
    assert found == [(b"0", rows[0]), (b"1", rows[1])]


def test_csv_with_several_columns_without_a_name_is_refused_in_a_sentence(
    command: Command, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "0.csv").write_text("a,,\n0,x,\n")
    said = command.refused("import", str(tmp_path), "--topic", topic, "--format", "csv", code=6)
    (line,) = said.strip().splitlines()
    assert line.endswith("0.csv cannot be read: its columns 2, 3 have no name")


QUOTED = ['say "hi"', 'say "hi", you', '"', '{"a": 1, "b": "c"}', 'a "b"\nc', "back\\slash,\\"]


def test_quotes_in_csv_are_read_as_the_rfc_has_them(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b"], *([value, "x"] for value in QUOTED)])
    command("import", str(tmp_path), "--topic", topic, "--format", "csv")
    found = [json.loads(row.value or b"") for row in topics.read(topic, len(QUOTED))]
    assert found == [{"a": value, "b": "x"} for value in QUOTED]


def test_quotes_in_csv_that_spark_wrote_are_read_as_spark_writes_them(
    command: Command, spark: "SparkSession", topics: Topics, topic: str, tmp_path: Path
) -> None:
    rows = spark.createDataFrame([(value, "x") for value in QUOTED], "a STRING, b STRING")
    folder = str(tmp_path / "rows")
    rows.coalesce(1).write.option("header", "true").csv(folder)
    command("import", folder, "--topic", topic, "--format", "csv")
    found = [json.loads(row.value or b"") for row in topics.read(topic, len(QUOTED))]
    assert found == [{"a": value, "b": "x"} for value in QUOTED]


def test_csv_that_an_export_wrote_may_be_called_otherwise_and_have_fields(
    command: Command, topics: Topics, topic: str, target: str, tmp_path: Path
) -> None:
    topics.produce(topic, [json.dumps({"a": value, "topic": "x"}).encode() for value in QUOTED])
    to = ("--to", str(tmp_path / "lake"), "--format", "csv", "--values", "json")
    command("export", topic, *to)
    files = [file for file in (tmp_path / "lake").glob("date=*/*.csv") if file.stat().st_size]
    (tmp_path / "files").mkdir()
    for n, file in enumerate(files):
        file.rename(tmp_path / "files" / f"{n}.csv")
    command("import", str(tmp_path / "files"), "--topic", target, "--format", "csv")
    found = [json.loads(row.value or b"") for row in topics.read(target, len(QUOTED))]
    assert [row["a"] for row in found] == QUOTED


def test_csv_of_another_program_may_say_where_records_were(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    columns = ["topic", "partition", "offset", "timestamp", "key", "value"]
    rows = [["t", str(n), str(n), "0", f"k{n}", value] for n, value in enumerate(QUOTED)]
    with (tmp_path / "dump.csv").open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    command("import", str(tmp_path), "--topic", topic, "--format", "csv")
    found = [(row.key, row.value) for row in topics.read(topic, len(QUOTED))]
    assert found == [(f"k{n}".encode(), value.encode()) for n, value in enumerate(QUOTED)]


def test_names_of_files_and_columns_that_others_give_them(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    # As Databricks names what Spark writes there.
    uuid = "6e9e9b0c-5d3f-4a51-8c28-7a6d0e7a3b11"
    file = tmp_path / f"part-00000-tid-2091085904019203489-{uuid}-20-1-c000.csv"
    file.write_text('a`b.c,_corrupt_record\n1,"say \\"hi\\""\n')
    command("import", str(tmp_path), "--topic", topic, "--format", "csv", "--key", "a`b.c")
    (row,) = topics.read(topic, 1)
    expected = {"a`b.c": "1", "_corrupt_record": 'say "hi"'}
    assert (row.key, json.loads(row.value or b"")) == (b"1", expected)


def test_a_file_that_came_late_and_is_old_is_imported_too(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    for n, days in ((0, 1), (1, 30)):  # as from a backup that keeps the times of files
        file = folder / f"{n}.txt"
        file.write_text(f"{n}\n")
        then_s = time.time() - 86_400 * days
        os.utime(file, (then_s, then_s))
        command("import", str(folder), "--topic", topic, "--format", "text")
    assert [row.value for row in topics.read(topic, 2)] == [b"0", b"1"]


def test_files_that_one_broker_has_are_sent_to_another_one_too(
    command: Command, topic: str, tmp_path: Path
) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "rows.txt").write_text("one\n")
    words = ["import", str(folder), "--topic", topic, "--format", "text"]
    command(*words)
    with EmbeddedBroker() as other:
        other.create_topic(topic)
        there = Command(other.address)
        there(*words)
        assert "imported 1 row of" in there.said
        assert [record.value for record in other.records(topic)] == [b"one"]
    command(*words)
    assert "imported 0 rows" in command.said


def test_a_topic_that_was_made_again_gets_all_files(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.txt").write_text("one\n")
    words = ["import", str(tmp_path), "--topic", topic, "--format", "text"]
    command(*words)
    topics.delete(topic)
    topics.create(topic)
    command(*words)
    assert [row.value for row in topics.read(topic, 1)] == [b"one"]
    command(*words)
    assert "imported 0 rows" in command.said


def test_an_import_ends_where_its_topic_is_made_again_and_the_next_one_sends_each_file_once(
    command: Command, topics: Topics, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1.txt").write_text("one\n")
    words = ["import", str(tmp_path), "--topic", topic, "--format", "text"]

    def run(query: "StreamingQuery", tell: object) -> int:
        try:
            query.processAllAvailable()
            topics.delete(topic)
            topics.create(topic)
            (tmp_path / "2.txt").write_text("two\n")
            query.processAllAvailable()
        finally:
            query.stop()
        return 0

    with monkeypatch.context() as patches:
        patches.setattr("segbroker.spark.pipelines.run", run)
        said = command.refused(*words, "--every", "1 second", code=6)
    assert f"topic {topic!r} was deleted and made again" in said
    command(*words)
    assert "imported 2 rows of" in command.said
    assert sorted(row.value or b"" for row in topics.read(topic, 2)) == [b"one", b"two"]


def test_a_second_export_into_the_same_folder_is_refused_and_not_taken_for_the_first(
    command: Command, topics: Topics, name: Name, tmp_path: Path
) -> None:
    topic, other = name(), name()
    for each in (topic, other):
        topics.create(each)
        topics.produce(each, [each.encode()])
    folder = str(tmp_path / "lake")
    command("export", topic, "--to", folder)
    for words in ([other], [topic, "--checkpoint", str(tmp_path / "another")]):
        said = command.refused("export", *words, "--to", folder)
        assert f"{folder} has the files of another export" in said
    topics.produce(topic, [b"more"])
    command("export", topic, "--to", folder)
    assert "exported 1 record of" in command.said
    command("export", other, "--to", folder + "-of-its-own")
    assert "exported 1 record of" in command.said


def test_sql_sees_the_fields_of_json_objects_and_of_arrow_streams(
    command: Command, topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic, 2)
    topics.produce(topic, flights(30), partition=0)
    out = command(
        "sql", f"SELECT carrier, sum(delay) FROM topic('{topic}') GROUP BY carrier ORDER BY 1"
    )
    assert [line.split() for line in out.splitlines()] == [
        ["carrier", "sum(delay)"],
        ["AA", str(sum(range(0, 30, 3)))],
        ["UA", str(sum(n for n in range(30) if n % 3))],
    ]
    query = f"SELECT delay, _offset FROM topic('{topic}', 'delay INT') WHERE delay = 7"
    assert json.loads(command("sql", query, "--format", "json")) == {"delay": 7, "_offset": 7}

    columnar = name()
    topics.create(columnar)
    table = pyarrow.RecordBatch.from_pydict({"n": [1, 2], "name": ["a", "b"]})
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_batch(table)
    topics.produce(columnar, [sink.getvalue().to_pybytes()] * 2)
    out = command("sql", f"SELECT sum(n), max(name) FROM topic('{columnar}', 'arrow')")
    assert out.splitlines()[1].split() == ["6", "b"]


def test_each_row_of_sql_is_an_object_of_json_whatever_is_in_it(command: Command) -> None:
    def no_json(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    cells = "double('NaN') AS a, array(-double('Infinity')) AS b, map(date'2026-01-02', 1) AS c"
    out = command("sql", f"SELECT {cells}, map(2, X'61') AS d", "--format", "json")
    assert json.loads(out, parse_constant=no_json) == {
        "a": "NaN",
        "b": ["-Infinity"],
        "c": {"2026-01-02": 1},
        "d": {"2": "a"},
    }
    said = command.refused("sql", "SELECT 1 AS n, 2 AS n", "--format", "json", code=2)
    assert "several columns are named 'n'" in said


@pytest.mark.parametrize("output", ["table", "json"])
def test_rows_that_are_not_printed_are_told_of(command: Command, output: str) -> None:
    for words, count in (("--limit", "3"), 3), (("--limit", "4"), 4), (("--limit", "0"), 4):
        out = command("sql", "SELECT id FROM range(4)", "--format", output, *words)
        assert len(out.splitlines()) == count + (output == "table")
        assert f"{count} rows in " in command.said
        assert ("there are more rows" in command.said) is (count < 4)
    command.refused("sql", "SELECT 1", "--limit", str(1 << 31), code=2)


@pytest.mark.parametrize("output", ["table", "json"])
def test_times_are_those_of_the_session_in_any_year_wherever_they_are_in_a_row(
    spark: "SparkSession", command: Command, output: str
) -> None:
    zone = "spark.sql.session.timeZone"
    spark.conf.set(zone, "Pacific/Chatham")  # of nobody who runs the tests
    times = "timestamp_seconds(1700000000) AS a, map(timestamp_seconds(0), array(date'2026-01-02'))"
    try:
        out = command("sql", f"SELECT {times}, timestamp_seconds(1e12) AS b", "--format", output)
    finally:
        spark.conf.unset(zone)
    for time_ in ("2023-11-15 11:58:20", "1970-01-01 12:45:00", "2026-01-02", "+33658-09-27"):
        assert time_ in out, out


def test_a_replay_filters_into_another_topic_and_goes_on_where_it_was(
    command: Command, topics: Topics, topic: str, target: str, tmp_path: Path
) -> None:
    topics.produce(topic, flights(20), key=b"k", headers=[("h", b"1")])
    words = ["replay", topic, target, "--checkpoint", str(tmp_path), "--values", "delay INT"]
    command(*words, "--where", "data.delay >= 18")
    topics.produce(topic, flights(20))
    command(*words, "--where", "data.delay >= 18", "--max-offsets", "15")
    found = topics.read(target, 4)
    assert [json.loads(row.value or b"")["delay"] for row in found] == [18, 19, 18, 19]
    assert [(row.key, row.headers) for row in found] == [(b"k", [("h", b"1")])] * 2 + [
        (None, [])
    ] * 2


@pytest.mark.parametrize("kind", ["import", "replay"])
def test_what_goes_into_a_topic_goes_in_batches_that_a_transaction_lives_through(
    command: Command,
    topics: Topics,
    topic: str,
    target: str,
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = [b"%d" % n + bytes(1000) for n in range(30)]
    monkeypatch.setattr("segbroker.spark.pipelines.BATCH_BYTES", 10_000)
    words = ["replay", topic, target, "--checkpoint", str(tmp_path)]
    if kind == "import":
        words = ["import", str(tmp_path), "--topic", target, "--format", "text"]
        for n, value in enumerate(values[:3]):
            (tmp_path / f"{n}.txt").write_bytes(value.replace(b"\0", b"x") * 7 + b"\n")
    else:
        for value in values:
            topics.produce(topic, [value], partition=0)
    command(*words)
    sent = 3 if kind == "import" else len(values)
    assert command.said.count("batch ") >= 3, command.said
    assert len(topics.read(target, sent)) == sent


@pytest.mark.parametrize("kind", ["export", "replay"])
def test_a_pipeline_that_retention_overtook_goes_on_when_it_is_told_to(
    command: Command, topics: Topics, topic: str, target: str, tmp_path: Path, kind: str
) -> None:
    topics.produce(topic, flights(10))
    words = ["export", topic, "--to", str(tmp_path / "lake"), "--format", "json"]
    if kind == "replay":
        words = ["replay", topic, target, "--checkpoint", str(tmp_path / "place")]
    command(*words)
    topics.produce(topic, flights(10))
    topics.delete_records_before(topic, 0, 15)
    said = command.refused(*words, code=10)
    assert "offsets [10, 15) are lost, the log now starts at 15 (records were deleted)." in said
    assert said.splitlines()[-1] == "Hint: --on-gap skip reads what is left"
    assert "failOnDataLoss" not in said
    command(*words, "--on-gap", "skip")
    if kind == "export":
        files = (tmp_path / "lake").glob("date=*/*.json")
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        found = [json.loads(line["value"])["delay"] for line in lines]
    else:
        found = [json.loads(row.value or b"")["delay"] for row in topics.read(target, 15)]
    assert sorted(found) == sorted([*range(10), *range(5, 10)])


def test_a_query_over_a_log_with_a_gap_is_refused_or_has_what_is_left(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    gap = gap_batches(2, 5, GapReason.LOST_TAIL, 0, 0)
    log = [batch(0, [b"a", b"b"]), *map(bytes, gap), batch(5, [b"c"])]
    with ScriptedBroker(lambda _: fetched(*log, high_watermark=6), log_end=6).running() as broker:
        host, port = broker.address
        command = Command(f"{host}:{port}")
        monkeypatch.setattr("segbroker.spark.session", lambda conf=None: Lent(spark))
        words = ("sql", f"SELECT count(*) AS n FROM topic('{TOPIC}', 'text')", "--format", "json")
        said = command.refused(*words, code=10)
        assert "partition 0: offsets [2, 5) are lost, the log has a gap there" in said
        assert json.loads(command(*words, "--on-gap", "skip")) == {"n": 3}


@pytest.mark.parametrize(
    "every", ["10 seconds", "0 seconds", "1.5 seconds", "Interval 1 minute 30 SECONDS", " 1 day "]
)
def test_intervals_are_those_that_spark_takes(spark: "SparkSession", every: str) -> None:
    assert INTERVAL.fullmatch(every)
    spark.readStream.format("rate").load().writeStream.trigger(processingTime=every)


def test_replays_of_topics_with_dashes_have_a_checkpoint_each(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = f"file:{tmp_path}/"
    monkeypatch.setattr("segbroker.spark.checkpoints.REPLAYS", folder)
    assert of_replay(spark, "a-b", "c") != of_replay(spark, "a", "b-c")
    (tmp_path / "replay-a-b").mkdir()
    (tmp_path / "replay-a-b" / "metadata").touch()  # an earlier version began it
    assert of_replay(spark, "a", "b") == f"{folder}replay-a-b"


def test_the_checkpoint_of_files_is_in_the_folder_that_they_lie_in(
    spark: "SparkSession", tmp_path: Path
) -> None:
    (tmp_path / "day[1]").mkdir()
    begun = tmp_path / "day=*" / "_segbroker" / "x-file.csv"
    begun.mkdir(parents=True)
    (begun / "metadata").touch()
    for path, place in (
        ("/file.csv", "/_segbroker/x-file.csv"),
        ("file.csv", "./_segbroker/x-file.csv"),
        ("/lake", "/lake/_segbroker/x"),
        ("/lake/*.csv", "/lake/_segbroker/x-+.csv"),
        ("/lake/day?", "/lake/_segbroker/x-day?"),
        ("/lake/[ab]", "/lake/_segbroker/x-[ab]"),
        ("/lake/{a,b}/", "/lake/_segbroker/x-{a,b}"),
        ("/lake/day=*/file.csv", "/lake/_segbroker/x-day=++file.csv"),
        ("/lake/day=*/of", "/lake/_segbroker/x-day=++of"),
        ("day=*/*.csv", "./_segbroker/x-day=+++.csv"),
        # As an earlier version made it.
        (f"{tmp_path}/day[1]", f"{tmp_path}/day[1]/_segbroker/x"),
        (f"{tmp_path}/day=*/file.csv", f"{begun}"),
    ):
        assert beside(spark, path, "x") == place


@pytest.mark.parametrize(
    "pattern", ["day?", "[de]ay1", "{day1,day2}", "day*/lines", "[de]ay1/lines", "day?/*"]
)
def test_a_pattern_of_folders_makes_no_folder_of_its_name(
    command: Command, target: str, tmp_path: Path, pattern: str
) -> None:
    (tmp_path / "day1").mkdir()
    (tmp_path / "day1" / "lines").write_text("one\ntwo\n")
    for said in ("imported 2 rows", "imported 0 rows"):
        command("import", str(tmp_path / pattern), "--topic", target, "--format", "text")
        assert said in command.said
    assert sorted(each.name for each in tmp_path.iterdir()) == ["_segbroker", "day1"]


def test_what_goes_wrong_is_one_sentence(
    command: Command, topics: Topics, name: Name, tmp_path: Path
) -> None:
    topic = name()
    assert f"topic '{topic}' does not exist" in command.refused(
        "sql", f"SELECT * FROM topic('{topic}')", code=5
    )
    assert "PARSE_SYNTAX_ERROR" in command.refused("sql", "SELEC 1", code=2)
    nowhere = command.refused("import", str(tmp_path / "none"), "--topic", topic, code=2)
    assert "PATH_NOT_FOUND" in nowhere


def exported(folder: Path) -> list[dict[str, Any]]:
    """The rows of JSON files, by their offsets."""
    files = folder.glob("*=*/*.json")
    lines = [line for file in files for line in file.read_text().splitlines()]
    return sorted(map(json.loads, lines), key=lambda row: int(row["_offset"]))


def test_values_that_are_no_objects_hold_up_no_export(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """As a wrong record of one producer, that is among the newest."""
    topics.produce(topic, [b'{"n": 1}'])
    words = ["export", topic, "--to", str(tmp_path), "--format", "json", "--values", "json"]
    command(*words)
    topics.produce(topic, [b"no JSON", b'{"n": 2}'])
    command(*words)
    rows = [(row.get("n"), row.get("_value")) for row in exported(tmp_path)]
    assert rows == [(1, None), (None, "no JSON"), (2, None)]


def test_an_export_that_an_earlier_version_began_keeps_the_name_of_its_new_column_too(
    command: Command, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.produce(topic, [b'{"n": 1}'])
    words = ["export", topic, "--to", str(tmp_path), "--format", "json", "--values", "json"]
    command(*words)
    noted = tmp_path / "_segbroker" / f"export-{topic}" / "segbroker-names"
    names = json.loads(noted.read_text())
    del names["_value"]  # as of 0.4.1
    noted.write_text(json.dumps(names))
    noted.with_name(".segbroker-names.crc").unlink()
    topics.produce(topic, [b'{"n": 2'])
    command(*words)
    assert [row.get("_value") for row in exported(tmp_path)] == [None, '{"n": 2']
    topics.produce(topic, [b'{"n": 3, "_value": "a field"}'])
    assert "column '_value'" in command.refused(*words, code=2)
    assert json.loads(noted.with_name("segbroker-names-2").read_text()) == {"_value": "_value"}


def test_what_is_lost_while_a_sample_is_taken_ends_no_export(
    command: Command, topics: Topics, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of records that an earlier run has exported, as by retention."""
    topics.produce(topic, [b'{"n": 1}'] * 10)
    words = ["export", topic, "--to", str(tmp_path), "--format", "json", "--values", "json"]
    command(*words)
    topics.produce(topic, [b'{"n": 2}'])

    class Overtaken(Planner):
        def close(self) -> None:
            super().close()
            topics.delete_records_before(topic, 0, 10)

    monkeypatch.setattr("segbroker.spark.sampling.Planner", Overtaken)
    command(*words)
    assert "exported 1 record of" in command.said


@pytest.mark.parametrize("headers", [[{"name": "x", "v": 1}], ["x"], []])
def test_headers_among_other_fields_are_a_field(
    command: Command, topics: Topics, topic: str, tmp_path: Path, headers: list[object]
) -> None:
    row = {"headers": headers, "url": "u", "value": 1}
    (tmp_path / "0.json").write_text(json.dumps(row) + "\n")
    command("import", str(tmp_path), "--topic", topic, "--format", "json")
    assert [json.loads(row.value or b"") for row in topics.read(topic, 1)] == [row]


def test_an_import_that_found_no_topic_leaves_no_note_that_counts_for_all_later_ones(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("segbroker.spark.session", lambda conf=None: Lent(spark))
    (tmp_path / "rows.txt").write_text("one\n")
    words = ["import", str(tmp_path), "--topic", "clicks", "--format", "text"]
    with EmbeddedBroker(auto_create_topics=False) as broker:
        command, topics = Command(broker.address), Topics(broker.address)
        assert "topic 'clicks' does not exist" in command.refused(*words, code=6)
        for _ in range(2):
            topics.create("clicks")
            command(*words)
            assert "imported 1 row of" in command.said
            topics.delete("clicks")
        topics.close()


def test_a_column_of_an_export_to_parquet_has_one_type_in_all_files(
    command: Command, topics: Topics, topic: str, tmp_path: Path, spark: "SparkSession"
) -> None:
    """Or Spark reads nothing of them."""
    topics.produce(topic, [b'{"n": 1, "o": {"a": 1}, "l": [{"a": 1}]}'])
    words = ["export", topic, "--to", str(tmp_path), "--values", "json"]
    command(*words)
    other = b'{"n": "two", "o": 2, "l": [2]}'
    more = b'{"n": 3, "o": {"a": 3, "b": "x"}, "l": [{"a": 3, "b": "y"}], "later": 1}'
    topics.produce(topic, [other, more])
    command(*words)
    found = spark.read.option("mergeSchema", "true").parquet(str(tmp_path))
    rows = [row.asDict(recursive=True) for row in found.orderBy("_offset").collect()]
    assert [row["n"] for row in rows] == [1, None, 3]
    assert [row["_value"] for row in rows] == [None, other.decode(), None]
    assert (rows[2]["o"], rows[2]["later"]) == ({"a": 3, "b": "x"}, 1)
    assert rows[2]["l"] == [{"a": 3, "b": "y"}]
    # What is known is enough for a topic whose records were deleted.
    topics.delete_records_before(topic, 0, 3)
    command(*words)
    assert "exported 0 records of" in command.said


@pytest.mark.parametrize("value", [b'{"N": 2}', b'{"o": {"a": 1, "b": 1}}'])
def test_fields_that_differ_in_case_or_are_too_many_are_noted_for_no_later_run(
    command: Command,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: bytes,
) -> None:
    monkeypatch.setattr("segbroker.spark.export_notes.FIELDS_MAX", 3)
    topics.produce(topic, [b'{"n": 1}'])
    words = ["export", topic, "--to", str(tmp_path), "--values", "json"]
    command(*words)
    topics.produce(topic, [value])
    command(*words)
    notes = (tmp_path / "_segbroker" / f"export-{topic}").glob("segbroker-types-*")
    assert [note.name for note in notes] == ["segbroker-types-1"]
