"""The guide's and the README's snippets for Spark run, in the order in which they stand."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from .bare_machine import path_without_java
from .topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SNIPPET = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.spark


@pytest.mark.usefixtures("segbroker_only")
def test_the_snippets_of_the_guide_run(
    spark: "SparkSession", topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # a snippet sets it where it is not set
    for topic in ("flights", "by-carrier", "clicks"):
        topics.create(topic)
    flights = [{"carrier": "UA" if n % 3 else "AA", "dep_delay": n} for n in range(30)]
    topics.produce("flights", [json.dumps(flight).encode() for flight in flights])
    readme = (ROOT / "README.md").read_text().split("\n## From Spark\n")[1]
    snippets = SNIPPET.findall((ROOT / "docs" / "spark.md").read_text())
    assert len(snippets) == 4
    names: dict[str, object] = {"__name__": "guide"}
    for snippet in (*snippets, *SNIPPET.findall(readme)):
        code = dedent(snippet).replace("127.0.0.1:9092", topics.bootstrap)
        # Checkpoints lie where the JVM runs.
        code = code.replace('Location", "', f'Location", "{tmp_path}/')
        exec(compile(code, "docs/spark.md", "exec"), names)
    written = topics.read("by-carrier", 31)
    assert [row.key for row in written].count(b"UA") == 21
    assert written[-1].value == b"a record"


@pytest.mark.usefixtures("brief_java")
def test_a_session_of_ones_own_works_where_the_environment_is_not_activated(
    tmp_path: Path,
) -> None:
    (snippet,) = (
        found
        for found in SNIPPET.findall((ROOT / "docs" / "spark.md").read_text())
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
