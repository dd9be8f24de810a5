"""How tests of Kafka are named to its runner."""

import shutil
import subprocess
from pathlib import Path

import pytest

from . import kafka, kafka_core
from .kafka import LISTED_ALONE, methods
from .kafka_core import CHANGES, SOURCES
from .verdicts import allow_list


def test_a_test_is_played_by_its_method_with_whole_types() -> None:
    listed = ["X.testA(String, String)[1]", "X.testA(String, String)[2]", "X.testB()[1]"]
    assert methods("kafka.api.XTest", listed) == [
        "--select-method=kafka.api.XTest#testA(java.lang.String,java.lang.String)",
        "--select-method=kafka.api.XTest#testB()",
    ]


@pytest.mark.parametrize(
    ("suite", "classes"), [("kafka", kafka.CLASSES), (kafka_core.SUITE, kafka_core.CLASSES)]
)
def test_every_listed_test_is_of_a_class_that_is_played_and_can_be_named(
    suite: str, classes: tuple[str, ...]
) -> None:
    played = {name.rpartition(".")[2] for name in classes}
    by_class: dict[str, list[str]] = {}
    for test in allow_list(suite):
        by_class.setdefault(test.partition(".")[0], []).append(test)
    assert by_class.keys() <= played
    for short in played & set(LISTED_ALONE):
        assert methods(short, by_class[short])


def test_what_is_changed_for_todays_kafka_fits_the_sources(tmp_path: Path) -> None:
    """Its compilers are not here, or not always."""
    for source in SOURCES:
        shutil.copy(source, tmp_path)
    command = ["patch", "-p1", "--fuzz=0", "-i", str(CHANGES)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
