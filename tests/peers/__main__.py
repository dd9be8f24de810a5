"""`python -m tests.peers [SUITE [TEST ...]]`: run the peers' suites; the exit code says whether
every listed test passed.

    python -m tests.peers                        all suites, whole
    python -m tests.peers librdkafka 0012 0081   some tests, by the first part of their names
    python -m tests.peers kafka-python test_group
    python -m tests.peers franz-go TxnEtl
    python -m tests.peers kafka-go TestReader
    python -m tests.peers confluent-kafka-go TestConsumerPoll
    python -m tests.peers sarama TestFuncTxn
    python -m tests.peers rskafka produce_rskafka
    python -m tests.peers samsa offset
    python -m tests.peers krafka test_admin
    python -m tests.peers goka TestRebalance
    python -m tests.peers watermill TestCtxValues
    python -m tests.peers kafka PlaintextConsumerTest
    python -m tests.peers kafka-core AuthorizerIntegrationTest
    python -m tests.peers kafka-shares ShareConsumerTest
    python -m tests.peers kafka-streams EosIntegrationTest
    python -m tests.peers kafka-streams-groups RestoreIntegrationTest
    python -m tests.peers kafka-connect OffsetsApiIntegrationTest

A suite that is built with a language that is not here is left out of a run of all.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from . import (
    confluent_kafka_go,
    franz_go,
    goka,
    kafka,
    kafka_connect,
    kafka_core,
    kafka_go,
    kafka_python,
    kafka_shares,
    kafka_streams,
    kafka_streams_groups,
    krafka,
    librdkafka,
    rskafka,
    samsa,
    sarama,
    watermill,
)
from .places import Missing, NotInstalled
from .verdicts import Outcome, allow_list, describe, judge, part_list

SUITES = (
    "librdkafka",
    "kafka-python",
    "franz-go",
    "kafka-go",
    "confluent-kafka-go",
    "sarama",
    "rskafka",
    "samsa",
    "krafka",
    "goka",
    "watermill",
    "kafka",
    "kafka-core",
    "kafka-shares",
    "kafka-streams",
    "kafka-streams-groups",
    "kafka-connect",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suite", nargs="?", choices=SUITES, help="all when none is named")
    parser.add_argument("test", nargs="*", help="only these tests")
    parser.add_argument(
        "--at-once",
        type=int,
        default=2,
        help="tests of librdkafka side by side; of classes of Streams twice as many",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="not in the quick mode of librdkafka, franz-go, Streams and Connect: an hour or two",
    )
    parser.add_argument("--folder", type=Path, help="keep data and output here")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="segbroker-peers-"))
    is_good = True
    for suite in [options.suite] if options.suite else SUITES:
        place = folder / suite
        place.mkdir(parents=True)
        try:
            outcomes = play(suite, place, options.test, options.at_once, is_quick=not options.full)
        except Missing as exc:
            is_left_out = isinstance(exc, NotInstalled) and options.suite is None
            print(f"{suite}: {'left out' if is_left_out else 'cannot be run here'}: {exc}")
            is_good = is_good and is_left_out
            continue
        verdict = judge(outcomes, allow_list(suite), part_list(suite))
        is_good = is_good and verdict.is_good
        print(describe(suite, verdict), flush=True)
    print(f"output of the tests: {folder}")
    return 0 if is_good else 1


def play(
    suite: str, place: Path, tests: list[str], at_once: int, *, is_quick: bool
) -> dict[str, Outcome]:

    def told(line: str) -> None:
        print(line, flush=True)

    if suite == "librdkafka":
        return librdkafka.play(place, tests, at_once, told, is_quick=is_quick)
    if suite == "franz-go":
        return franz_go.play(place, tests, is_quick=is_quick)
    if suite == "kafka-go":
        return kafka_go.play(place, tests)
    if suite == "confluent-kafka-go":
        return confluent_kafka_go.play(place, tests)
    if suite == "sarama":
        return sarama.play(place, tests)
    if suite == "rskafka":
        return rskafka.play(place, tests)
    if suite == "samsa":
        return samsa.play(place, tests, is_quick=is_quick)
    if suite == "krafka":
        return krafka.play(place, tests)
    if suite == "goka":
        return goka.play(place, tests)
    if suite == "watermill":
        return watermill.play(place, tests)
    if suite == "kafka":
        return kafka.play(place, tests)
    if suite == "kafka-core":
        return kafka_core.play(place, tests)
    if suite == "kafka-shares":
        return kafka_shares.play(place, tests)
    if suite == "kafka-streams":
        # They wait most of their time.
        return kafka_streams.play(place, tests, 2 * at_once, told, is_quick=is_quick)
    if suite == "kafka-streams-groups":
        return kafka_streams_groups.play(place, tests)
    if suite == "kafka-connect":
        return kafka_connect.play(place, tests, at_once, told, is_quick=is_quick)
    return kafka_python.play(place / "data", tests, place / "output")


if __name__ == "__main__":
    sys.exit(main())
