"""What kafka-python forgets (conftest.py) fails no test of ours."""

import gc

import pytest
from kafka.net.inet import KafkaNetSocket


def test_a_socket_that_kafka_python_forgot_is_closed_without_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    forgotten = KafkaNetSocket().socket()
    assert forgotten.fileno() >= 0
    del forgotten
    gc.collect()
    assert not recwarn.list
