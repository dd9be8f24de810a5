"""Programs with a virtual machine of their own, or that end before they would start one."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner

from segbroker.cli.exit_codes import ExitCode
from segbroker.cli.main import segbroker
from segbroker.spark import ensure_java

from ..support.extent import share
from .bare_machine import path_without_java
from .snippets import snippets
from .topics import Topics

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = [sys.executable, "-m", "segbroker.cli"]


INTERRUPTED = (
    pytest.param(signal.SIGINT, os.kill, 130, id="ctrl-c"),
    pytest.param(signal.SIGTERM, os.kill, 143, id="sigterm"),
    # As `timeout` and systemd do: it ends the JVM, too.
    pytest.param(signal.SIGTERM, os.killpg, 143, id="sigterm to all"),
)


@pytest.mark.usefixtures("brief_java")
@pytest.mark.parametrize(("number", "to", "code"), share(INTERRUPTED[::2], INTERRUPTED))
def test_a_pipeline_that_is_interrupted_ends_without_a_traceback(
    bootstrap: str,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    number: signal.Signals,
    to: Callable[[int, int], None],
    code: int,
) -> None:
    topics.produce(topic, [b"one"])
    words = [*PROGRAM, "spark", "export", topic, "--to", str(tmp_path / "out"), "-b", bootstrap]
    said = ""
    with subprocess.Popen(
        [*words, "--every", "1 second"], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if line.startswith("batch 0: 1 row,"):
                to(process.pid, number)
    assert process.returncode == code, said
    assert "Traceback" not in said, said


@pytest.mark.usefixtures("brief_java")
@pytest.mark.parametrize(
    ("number", "code"),
    share([(signal.SIGINT, 130)], [(signal.SIGINT, 130), (signal.SIGTERM, 143)]),
)
def test_a_start_of_spark_that_is_interrupted_ends_without_a_traceback(
    number: signal.Signals, code: int
) -> None:
    words = [*PROGRAM, "spark", "sql", "SELECT count(*) FROM range(10)"]
    said = ""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if "NativeCodeLoader" in line:  # the JVM is there, and makes its context
                os.killpg(process.pid, number)  # as a terminal does, and `timeout`
        assert process.stdout.read() == "", "it was at the start"
    assert process.returncode == code, said
    assert "Traceback" not in said, said


@pytest.mark.usefixtures("brief_java")
def test_a_start_that_spark_refuses_is_told_in_a_sentence() -> None:
    words = [*PROGRAM, "spark", "sql", "SELECT 1", "--master", "local-cluster[x]"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == ExitCode.SYSTEM, ended.stderr
    assert ended.stderr.splitlines()[-2:] == [
        "Error: Spark does not start: org.apache.spark.SparkException:"
        " Could not parse Master URL: 'local-cluster[x]'",
        "Hint: --master and --conf are settings of Spark",
    ]
    assert "Traceback" not in ended.stderr


def test_a_broker_that_is_not_there_is_told_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "127.0.0.1:1"
    monkeypatch.setattr("segbroker.spark.session", lambda _: pytest.fail("it was started"))
    for words in (
        ["export", "clicks", "--to", str(tmp_path)],
        ["sql", "SELECT * FROM topic('clicks')"],
    ):
        result = CliRunner().invoke(segbroker, ["spark", *words, "-b", address])
        assert (result.exit_code, "could be reached" in result.stderr) == (4, True), result.stderr


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["export", "clicks", "--to", "out", "--every", wrong]
            for wrong in ("nonsense", "-1 seconds", "10", "1 month", "", "1 second x")
        ),
        *(
            ["sql", "SELECT 1", "--master", wrong]
            for wrong in ("localhost", "localhost:7077", "local[0]", "local[x]", "spark://")
        ),
        ["replay", "clicks", "clicks"],
        ["replay", "clicks", "others", "--sql", "SELECT value FROM records", "--where", "true"],
    ],
)
def test_what_is_wrong_on_the_command_line_is_told_before_spark_is_started(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segbroker.cli.spark.spark_session", lambda *_: pytest.fail("started"))
    result = CliRunner().invoke(segbroker, ["spark", *words])
    assert result.exit_code == ExitCode.USAGE, result.stderr


@pytest.mark.usefixtures("brief_java")
def test_a_session_of_ones_own_works_where_the_environment_is_not_activated(
    tmp_path: Path,
) -> None:
    (snippet,) = (
        found
        for found in snippets((ROOT / "docs" / "spark.md").read_text())
        if "SparkSession.builder.getOrCreate()" in found
    )
    options = ".option('kafka.bootstrap.servers', 'localhost:1').option('subscribe', 't')"
    look = f"print(spark.read.format('segbroker'){options}.load().columns[:2])"
    (tmp_path / "program.py").write_text(f"{snippet}\n{look}\nspark.stop()\n")
    # No venv: its python3 is another one than that of the program.
    here = {"PATH": f"{path_without_java(tmp_path / 'bin')}", "SPARK_LOCAL_IP": "127.0.0.1"}
    kept = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    run = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env={**kept, **here},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.splitlines()[-1:] == ["['key', 'value']"], run.stderr


SUBMITTED = """
import os, sys
import segbroker.spark
settings = {"spark.sql.shuffle.partitions": "7", "spark.pyspark.python": sys.argv[1]}
spark = segbroker.spark.session(settings)
conf = spark.sparkContext.getConf()
for name in ("spark.master", "spark.app.name", "spark.ui.showConsoleProgress",
             "spark.sql.shuffle.partitions", "spark.ui.enabled"):
    print(name, conf.get(name))
rows = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("WRAPPED"))
print("worker", *rows.collect())
spark.stop()
"""


@pytest.mark.usefixtures("brief_java")
def test_what_spark_submit_was_told_stays_and_workers_run_the_python_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job for a cluster would run on the machine that submits it, and nobody be told.  And on a
    cluster Python is not where the driver has its own."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    ensure_java()
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nWRAPPED=yes exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    program = tmp_path / "program.py"
    program.write_text(SUBMITTED)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    told = ["--master", "local[1]", "--name", "mine"]
    told += ["--conf", "spark.ui.showConsoleProgress=true"]
    told += ["--conf", "spark.sql.shuffle.partitions=5"]
    run = subprocess.run(
        [str(submit), *told, str(program), str(wrapper)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith(("spark.", "worker "))]
    assert dict(line.split() for line in lines) == {
        "spark.master": "local[1]",
        "spark.app.name": "mine",
        "spark.ui.showConsoleProgress": "true",
        "spark.sql.shuffle.partitions": "7",
        "spark.ui.enabled": "false",
        "worker": "yes",
    }, run.stderr
