"""`segbroker topic` against a real daemon."""

import json

import pytest

from segbroker.cli.durability import PROMISES
from segbroker.cli.exit_codes import ExitCode
from segbroker.cli.failures import topic_setting_hint
from segbroker.cli.retention import cleaning_lines, retention_lines
from segbroker.client import Producer
from segbroker.client.cleaning import Cleaning
from segbroker.segments.settings.topic_config import Durability, TopicConfig
from segbroker.testing.embedded import EmbeddedBroker

from ..support.waiting import until
from .conftest import Run, segbroker


def test_a_topic_is_created_listed_described_altered_and_deleted(run: Run, topic: str) -> None:
    created = run("topic", "create", topic, "--partitions", "3", "-c", "segment.bytes=2MiB")
    assert (created.returncode, created.stdout) == (0, b"")
    assert created.stderr == f"created topic {topic} with 3 partitions\n".encode()
    assert topic in run("topic", "list").stdout.decode().splitlines()

    run("produce", topic, "-p", "1", stdin=b"a\nb\n")
    facts = json.loads(run("topic", "describe", topic, "--json").stdout)
    assert facts["name"] == topic
    assert [(row["partition"], row["records"]) for row in facts["partitions"]] == [
        (0, 0),
        (1, 2),
        (2, 0),
    ]
    config = {row["key"]: (row["value"], row["is_default"]) for row in facts["config"]}
    assert config["segment.bytes"] == ("2097152", False)
    assert config["durability"] == ("fsync", True)

    altered = run("topic", "alter", topic, "--unset", "segment.bytes", "--partitions", "4")
    assert altered.returncode == 0
    assert "4 partitions" in altered.stderr.decode()
    text = run("topic", "describe", topic).stdout.decode()
    assert text.startswith(f"topic {topic}: 4 partitions, 2 records\n")
    assert ["segment.bytes", "1048576", "default"] in [line.split() for line in text.splitlines()]

    deleted = run("topic", "delete", topic, "--yes")
    assert (deleted.returncode, deleted.stderr) == (0, f"deleted topic {topic}\n".encode())
    assert topic not in run("topic", "list").stdout.decode().splitlines()


@pytest.mark.parametrize(
    ("durability", "power_cut"),
    [
        ("fsync", "nothing"),
        ("disk", "at most the records not yet synced, those of about the last second"),
        ("memory", "at most everything since the last full segment"),
        ("ephemeral", "everything"),
    ],
)
def test_describe_says_what_the_durability_class_can_lose(
    run: Run, topic: str, durability: str, power_cut: str
) -> None:
    run("topic", "create", topic, "-c", f"durability={durability}")
    lines = run("topic", "describe", topic).stdout.decode().splitlines()
    assert f"durability: {durability}" in lines
    assert f"  lost when the power is cut       {power_cut}" in lines
    text = "\n".join(lines)
    assert ("at most 1,048,576 offsets" in text) == (durability != "fsync")
    assert "  records are kept                 for 7 days, by their timestamps" in lines


def test_every_durability_class_has_its_words() -> None:
    assert PROMISES.keys() == {durability.value for durability in Durability}


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"retention.ms": "-1"}, "  records are kept                 for ever"),
        ({"retention.ms": "5400000"}, "by their timestamps"),
        ({"retention.ms": "3600000"}, "for 1 hour, by their timestamps"),
        ({"retention.ms": "1"}, "for 1 ms, by their timestamps"),
        ({}, "  size                             without a limit"),
        (
            {"retention.bytes": str(3 << 20)},
            "  old segments go (drop-old)       while 3 MiB per partition stay",
        ),
        (
            {"retention.bytes": "1000", "retention.records": "1"},
            "while 1,000 bytes per partition and 1 record per partition stay",
        ),
        (
            {"retention.records": "5", "retention.full.policy": "reject"},
            "  a batch is refused (reject)      that would pass 5 records per partition",
        ),
        ({"cleanup.policy": ""}, "  records are kept                 for ever"),
        ({"cleanup.policy": "", "retention.bytes": "1"}, "  size       "),
        (
            {"cleanup.policy": "", "retention.bytes": "9", "retention.full.policy": "reject"},
            "  room is made                     only by deleting records",
        ),
        (
            {
                "cleanup.policy": "compact",
                "retention.bytes": "9",
                "retention.full.policy": "reject",
            },
            "  a batch is refused (reject)      that would pass 9 bytes per partition",
        ),
    ],
)
def test_describe_says_what_is_kept(settings: dict[str, str], line: str) -> None:
    config = {one.name: one.value for one in TopicConfig(settings).describe()}
    assert any(line in text for text in retention_lines(config)), retention_lines(config)


@pytest.mark.parametrize(
    "words", [("topic", "alter", "t"), ("group", "alter", "g"), ("broker", "alter")], ids="-".join
)
def test_a_setting_is_not_both_set_and_unset(run: Run, words: tuple[str, ...]) -> None:
    done = run(*words, "-c", "retention.ms=1h", "--unset", "retention.ms")
    assert done.returncode == ExitCode.USAGE
    assert "both -c and --unset of retention.ms" in done.stderr.decode()


def test_what_a_broker_does_not_tell_is_not_made_up() -> None:
    assert retention_lines({}) == []
    assert cleaning_lines([]) == []


def test_describe_says_how_far_a_compacted_topic_is_cleaned(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-c", "cleanup.policy=compact")
    text = run("topic", "describe", topic).stdout.decode()
    assert "the last record of each key is kept  for ever" in text
    assert "  last                             never" in text
    assert "  not cleaned yet, of full segments  0 bytes" in text
    later = Cleaning(7, 1_700_000_000_000, 2_048, 0.25)
    assert cleaning_lines([Cleaning(0, None, 0, 0.0), later])[1:] == [
        "  last                             2023-11-14 22:13:20 UTC",
        "  not cleaned yet, of full segments  2,048 bytes",
        "  share of that in the dirtiest partition  25%",
    ]


def test_records_are_deleted_up_to_an_offset(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "2")
    run("produce", topic, "-p", "1", stdin=b"a\nb\nc\n")
    done = run("topic", "delete-records", topic, "-p", "1", "--before", "2", "--yes")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == f"{topic} partition 1 now begins at offset 2\n".encode()
    facts = json.loads(run("topic", "describe", topic, "--json").stdout)
    assert [(row["start"], row["records"]) for row in facts["partitions"]] == [(0, 0), (2, 1)]
    too_far = run("topic", "delete-records", topic, "-p", "1", "--before", "9", "--yes")
    assert too_far.returncode != 0
    everything = run("topic", "delete-records", topic, "-p", "1", "--all", "--yes")
    assert b"begins at offset 3" in everything.stderr
    neither = run("topic", "delete-records", topic, "-p", "1", "--yes")
    assert neither.returncode == 2


def test_describe_verbose_says_what_each_setting_means(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    text = run("topic", "describe", topic, "-v").stdout.decode()
    (line,) = (line for line in text.splitlines() if line.startswith("segment.bytes "))
    assert "segment" in line.partition("default")[2]


def test_who_makes_a_topic_that_refuses_usual_batches_is_told(run: Run, topic: str) -> None:
    told = run("topic", "create", topic, "--partitions", "1", "-c", "segment.bytes=64KiB")
    assert (told.returncode, told.stdout) == (0, b"")
    made, warning = told.stderr.decode().splitlines()
    assert made == f"created topic {topic} with 1 partition"
    assert warning == (
        "it refuses batches above 65,536 bytes, and many producers make larger ones (librdkafka up"
        " to 1,000,000): set segment.bytes to 1MiB or more, or their batch.size to less"
    )
    told = run("topic", "alter", topic, "-c", "max.message.bytes=60000")
    assert "above 60,000 bytes" in told.stderr.decode()
    assert "set max.message.bytes and segment.bytes to 1MiB" in told.stderr.decode()
    told = run("topic", "alter", topic, "-c", "retention.ms=1000")
    assert told.stderr.decode() == f"changed retention.ms of topic {topic}\n"
    told = run("topic", "alter", topic, "--unset", "segment.bytes", "--unset", "max.message.bytes")
    assert len(told.stderr.decode().splitlines()) == 1


def test_of_a_compacted_topic_the_records_that_are_left_are_counted() -> None:
    config = {"cleanup.policy": "compact", "segment.bytes": "512"}
    config["min.cleanable.dirty.ratio"] = "0.01"
    with EmbeddedBroker(cleaner_backoff_ms=100) as broker:
        broker.create_topic("kept", config=config)
        with Producer(broker.address) as producer:
            for number in range(60):
                producer.send("kept", b"v", key=b"%d" % (number % 3)).result(60)
        until(lambda: len(broker.records("kept")) < 60)

        def described() -> int:
            words = ("topic", "describe", "kept", "--json", "-b", broker.address)
            (row,) = json.loads(segbroker(*words).stdout)["partitions"]
            assert row["end"] - row["start"] == 60
            return int(row["records"])

        until(lambda: described() == len(broker.records("kept")))
        listed = segbroker("topic", "list", "--long", "-b", broker.address).stdout.decode()
        assert listed.splitlines()[1].split()[:2] == ["kept", "1"]


def test_the_long_list_has_records_and_durability(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "2", "-c", "durability=disk")
    run("produce", topic, stdin=b"x\n" * 1500)
    rows = [line.split() for line in run("topic", "list", "-l").stdout.decode().splitlines()]
    assert rows[0] == ["topic", "partitions", "records", "durability"]
    assert [topic, "2", "1,500", "disk"] in rows
    long = json.loads(run("topic", "list", "-l", "--json").stdout)
    assert (
        sum(row["records"] for fact in long if fact["name"] == topic for row in fact["partitions"])
        == 1500
    )
    assert topic in json.loads(run("topic", "list", "--json").stdout)


def test_sizes_and_times_of_settings_may_have_a_unit(run: Run, topic: str) -> None:
    words = ("-c", "retention.ms=7d", "-c", "max.message.bytes=4MiB")
    assert run("topic", "create", topic, *words).returncode == 0
    assert run("topic", "alter", topic, "-c", "segment.ms=2 h").returncode == 0
    facts = json.loads(run("topic", "describe", topic, "--json").stdout)
    config = {row["key"]: row["value"] for row in facts["config"]}
    wanted = {"retention.ms": "604800000", "segment.ms": "7200000"}
    wanted |= {"max.message.bytes": "4194304", "segment.bytes": "4194304"}
    assert wanted.items() <= config.items()
    for setting, units in (
        ("segment.ms=2 weeks", "ms, min, s, h, d"),
        ("segment.bytes=4MB", "KiB"),
    ):
        wrong = run("topic", "alter", topic, "-c", setting)
        assert wrong.returncode == ExitCode.USAGE
        assert setting in wrong.stderr.decode()
        assert f"with a unit: {units}" in wrong.stderr.decode()
    run("topic", "delete", topic, "--yes")


def test_a_topic_that_exists_is_refused_or_accepted_as_asked(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    again = run("topic", "create", topic)
    assert again.returncode == 6
    assert topic in again.stderr.decode().splitlines()[0]
    assert f"Hint: segbroker topic describe {topic} shows it" in again.stderr.decode()
    assert run("topic", "create", topic, "--if-not-exists").returncode == 0


@pytest.mark.parametrize(
    "words",
    [["describe"], ["delete", "--yes"], ["alter", "-c", "segment.ms=1"]],
    ids=lambda w: w[0],
)
def test_a_topic_that_is_not_there_is_said(run: Run, words: list[str]) -> None:
    seen = run("topic", *words, "no-such-topic")
    said = seen.stderr.decode()
    assert (seen.returncode, seen.stdout) == (5, b"")
    assert "no-such-topic" in said.splitlines()[0]
    assert "Hint: segbroker topic list shows what there is" in said


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("segment.bytes=many", ["segment.bytes", "many"]),
        ("no.such.key=1", ["no.such.key", "Hint: segbroker topic describe NAME --verbose"]),
        ("retention=1", ["retention=1", "did you mean retention.ms?"]),
        ("durability=sometimes", ["durability", "sometimes"]),
        ("compression.type=brotli", ["none of producer, uncompressed, gzip, snappy, lz4, zstd"]),
    ],
)
def test_a_wrong_setting_is_refused_by_key_and_value(
    run: Run, topic: str, setting: str, named: list[str]
) -> None:
    created = run("topic", "create", topic, "-c", setting)
    assert created.returncode == 3
    for word in named:
        assert word in created.stderr.decode()
    run("topic", "create", topic)
    assert run("topic", "alter", topic, "-c", setting).returncode == 3


@pytest.mark.parametrize("name", ["with spaces", "..", "a/b", "n" * 250])
def test_a_name_that_cannot_be_is_refused_with_the_reason(run: Run, name: str) -> None:
    created = run("topic", "create", name)
    assert created.returncode == 6
    assert repr(name) in created.stderr.decode()
    assert "Hint: a name has 1 to 249 of" in run("consume", name, "-e").stderr.decode()


def test_a_name_that_collides_is_not_said_to_have_wrong_letters(run: Run, topic: str) -> None:
    run("topic", "create", f"{topic}.a")
    seen = run("topic", "create", f"{topic}_a")
    said = seen.stderr.decode()
    assert seen.returncode == 6
    assert f"collides with existing topic: {topic}.a" in said
    assert "Hint: names that differ in . and _ only" in said


def test_partitions_never_become_fewer(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "3")
    seen = run("topic", "alter", topic, "--partitions", "2")
    assert seen.returncode == 6
    assert "2" in seen.stderr.decode()
    assert "3" in seen.stderr.decode()


def test_nothing_is_deleted_without_a_yes(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    assert run("topic", "delete", topic, stdin=b"y\n").returncode == 2
    assert topic in run("topic", "list").stdout.decode().splitlines()


def test_a_topic_is_trimmed_to_an_offset_or_a_time_in_every_partition(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "2")
    for partition in ("0", "1"):
        run("produce", topic, "-p", partition, stdin=b"a\nb\nc\n")

    def starts() -> list[int]:
        facts = json.loads(run("topic", "describe", topic, "--json").stdout)
        return [row["start"] for row in facts["partitions"]]

    dry = run("topic", "trim", topic, "--before", "2", "--dry-run")
    assert (dry.returncode, starts()) == (0, [0, 0])
    assert dry.stderr == f"would delete 4 records of {topic}\n".encode()
    rows = [line.split() for line in dry.stdout.decode().splitlines()]
    assert rows == [["partition", "start", "deleted"], ["0", "2", "2"], ["1", "2", "2"]]
    one = run("topic", "trim", topic, "--before", "2", "-p", "1", "--yes")
    assert (one.returncode, starts()) == (0, [0, 2])
    ancient = run("topic", "trim", topic, "--before", "@1969-12-31T23:59:59.999Z", "--dry-run")
    assert b"would delete 0 records" in ancient.stderr
    nothing = run("topic", "trim", topic, "--before", "@1000000000000", "--yes")
    assert (nothing.returncode, starts()) == (0, [0, 2])
    everything = run("topic", "trim", topic, "--before", "@4000000000000", "--yes")
    assert (everything.returncode, starts()) == (0, [3, 3])
    assert run("topic", "trim", topic, "--before", "end", "--yes").returncode == 0


def test_a_setting_that_another_broker_does_not_know_is_not_advised_for_itself() -> None:
    assert topic_setting_hint("durabilty").startswith("did you mean durability?")
    assert "durability?" not in topic_setting_hint("durability")


def test_a_partition_or_setting_that_is_not_there_is_named(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "2")
    trimmed = run("topic", "trim", topic, "--before", "0", "-p", "2", "--yes")
    assert (trimmed.returncode, "partition 2" in trimmed.stderr.decode()) == (5, True)
    unset = run("topic", "alter", topic, "--unset", "segment.byte")
    assert (unset.returncode, "segment.byte" in unset.stderr.decode()) == (3, True)


@pytest.mark.parametrize("position", ["start", "-5", "yesterday"])
def test_a_place_to_trim_to_that_is_none_is_named(run: Run, topic: str, position: str) -> None:
    run("topic", "create", topic)
    wrong = run("topic", "trim", topic, f"--before={position}", "--yes")
    assert wrong.returncode == 2
    assert position.encode() in wrong.stderr
    assert run("topic", "trim", topic, "--before", "1").returncode == 2, "nobody to be asked"
