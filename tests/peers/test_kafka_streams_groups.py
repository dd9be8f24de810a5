"""Which of Kafka Streams' tests with the streams protocol are listed."""

from .kafka_streams_groups import CLASSES
from .verdicts import allow_list


def test_every_listed_test_is_of_a_class_that_is_played() -> None:
    played = {name.rpartition(".")[2] for name in CLASSES}
    assert {test.partition(".")[0] for test in allow_list("kafka-streams-groups")} <= played
