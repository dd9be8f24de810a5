from random import Random

import pytest
from kafka.partitioner.default import murmur2 as their_murmur2

from segbroker.protocol.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # org.apache.kafka.common.utils.UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_of_kafkas_own_vectors(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def test_the_hash_is_that_of_kafka_python_for_any_key() -> None:
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    random = Random(seed)
    for size in range(300):
        key = random.randbytes(size)
        assert murmur2(key) & 0xFFFFFFFF == their_murmur2(key) & 0xFFFFFFFF


def test_a_negative_hash_gives_a_partition_all_the_same() -> None:
    # -973932308 & 0x7fffffff = 1173551340
    assert partition_for_key(b"21", 7) == 1173551340 % 7
    assert {partition_for_key(b"21", count) < count for count in range(1, 100)} == {True}
