"""How tests of Kafka are named to its runner."""

from .kafka import CLASSES, LISTED_ALONE, methods
from .verdicts import allow_list


def test_a_test_is_played_by_its_method_with_whole_types() -> None:
    listed = ["X.testA(String, String)[1]", "X.testA(String, String)[2]", "X.testB()[1]"]
    assert methods("kafka.api.XTest", listed) == [
        "--select-method=kafka.api.XTest#testA(java.lang.String,java.lang.String)",
        "--select-method=kafka.api.XTest#testB()",
    ]


def test_every_listed_test_is_of_a_class_that_is_played_and_can_be_named() -> None:
    played = {name.rpartition(".")[2] for name in CLASSES}
    by_class: dict[str, list[str]] = {}
    for test in allow_list("kafka"):
        by_class.setdefault(test.partition(".")[0], []).append(test)
    assert by_class.keys() <= played
    for short in LISTED_ALONE:
        assert methods(short, by_class[short])
