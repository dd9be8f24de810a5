"""How each Java test ended: from the report of JUnit's console, or from there being none."""

from pathlib import Path

import pytest

from . import junit
from .verdicts import Outcome

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="JUnit Jupiter" tests="4" skipped="1" failures="1" errors="1">
<properties><property name="java.version" value="17"/></properties>
<testcase name="shouldCount()" classname="org.apache.CountTest" time="1.2">
<system-out><![CDATA[a line]]></system-out>
</testcase>
<testcase name="shouldJoin(boolean)[1]" classname="org.apache.CountTest$Inner" time="1">
<failure message="2 is not 1" type="java.lang.AssertionError"><![CDATA[at ...]]></failure>
</testcase>
<testcase name="shouldJoin(boolean)[2]" classname="org.apache.CountTest$Inner" time="1">
<error message="closed" type="java.io.IOException"><![CDATA[at ...]]></error>
</testcase>
<testcase name="shouldSkip()" classname="org.apache.CountTest" time="0">
<skipped><![CDATA[not here]]></skipped>
</testcase>
</testsuite>
"""
MACHINE = junit.Machine("")


def java(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program called java, before all others."""
    (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_a_report_says_how_each_test_ended() -> None:
    assert junit.ends(REPORT) == {
        "CountTest.shouldCount()": Outcome.PASSED,
        "CountTest$Inner.shouldJoin(boolean)[1]": Outcome.FAILED,
        "CountTest$Inner.shouldJoin(boolean)[2]": Outcome.FAILED,
        "CountTest.shouldSkip()": Outcome.SKIPPED,
    }


def test_who_is_expected_and_not_in_the_report_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report").write_text(REPORT)
    java(tmp_path, f"cp {tmp_path}/report TEST-junit-jupiter.xml", monkeypatch)
    expected = ["CountTest.shouldCount()", "CountTest.shouldEnd()"]
    found = junit.play(MACHINE, [], expected, tmp_path / "run", limit_s=60)
    assert found["CountTest.shouldCount()"] is Outcome.PASSED
    assert found["CountTest.shouldEnd()"] is Outcome.FAILED


def test_a_machine_that_does_not_end_is_ended_and_its_tests_are_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path, "exec sleep 600", monkeypatch)
    found = junit.play(MACHINE, [], ["CountTest.shouldEnd()"], tmp_path / "run", limit_s=0.2)
    assert found == {"CountTest.shouldEnd()": Outcome.LATE}
