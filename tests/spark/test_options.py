"""Options: what is taken, and the sentence for what is not."""

import pickle
import traceback
from collections.abc import Sequence

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.errors import OptionError, SourceUnavailable
from segbroker.spark.options import (
    Assign,
    Subscribe,
    SubscribePattern,
    TriggerLimits,
    parse_options,
    wants_headers,
)
from segbroker.spark.positions import AtTime, AtTimes, Exact, Extreme
from segbroker.spark.sink_options import parse_sink_options

BASE = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "clicks"}


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert parse_options(BASE, streaming=True).start is Extreme.LATEST
    assert parse_options(BASE, streaming=False).start is Extreme.EARLIEST
    assert parse_options(BASE, streaming=False).end is Extreme.LATEST


def test_names_are_found_in_any_case_and_under_both_prefixes() -> None:
    options = parse_options(
        {
            "SEGBROKER.bootstrap.servers": "a:1,b:2",
            "Subscribe": "one, two,one",
            "STARTINGOFFSETS": "Earliest",
            "failondataloss": "FALSE",
            "kafka.client.id": "report",
        },
        streaming=True,
    )
    assert options.client.bootstrap == (("a", 1), ("b", 2))
    assert options.selection == Subscribe(("one", "two"))
    assert options.start is Extreme.EARLIEST
    assert options.fail_on_data_loss is False
    assert options.client.client_id == "report"


def test_numbers_default_to_no_limit() -> None:
    options = parse_options(BASE, streaming=True)
    assert options.trigger == TriggerLimits(None, None, None, delay_ms=15 * 60_000)
    assert options.max_records_per_partition is None
    assert options.min_partitions is None
    assert options.fail_on_data_loss is True
    assert options.include_headers is False


def test_offsets_and_partitions_come_as_json() -> None:
    options = parse_options(
        {
            "kafka.bootstrap.servers": "broker:9092",
            "assign": '{"clicks": [2, 0, 2]}',
            "startingOffsets": '{"clicks": {"0": 23, "2": -2}, "$topic_ids": {"clicks": "x"}}',
            "endingOffsets": '{"clicks": {"0": 42, "2": -1}}',
        },
        streaming=False,
    )
    assert options.selection == Assign({"clicks": (0, 2)})
    assert options.start == Exact({"clicks": {0: 23, 2: -2}})
    assert options.end == Exact({"clicks": {0: 42, 2: -1}})


def test_a_time_comes_before_offsets() -> None:
    options = parse_options(
        {**BASE, "startingTimestamp": "1700000000000", "startingOffsets": "earliest"},
        streaming=True,
    )
    assert options.start == AtTime(1_700_000_000_000, no_match_is_latest=False)
    options = parse_options(
        {**BASE, "startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"},
        streaming=True,
    )
    assert options.start == AtTime(5, no_match_is_latest=True)


def test_a_time_for_each_partition_stands_between_one_time_and_offsets() -> None:
    times = {"startingOffsetsByTimestamp": '{"clicks": {"0": 7}}', "startingOffsets": "latest"}
    options = parse_options({**BASE, **times}, streaming=True)
    assert options.start == AtTimes({"clicks": {0: 7}}, no_match_is_latest=False)
    options = parse_options({**BASE, **times, "startingTimestamp": "5"}, streaming=True)
    assert options.start == AtTime(5, no_match_is_latest=False)
    options = parse_options(
        {**BASE, "endingOffsetsByTimestamp": '{"clicks": {"0": 9}}'}, streaming=False
    )
    assert options.end == AtTimes({"clicks": {0: 9}}, no_match_is_latest=True)


def test_a_trigger_has_a_least_and_a_most_and_a_delay_as_spark_writes_it() -> None:
    given = {
        "maxOffsetsPerTrigger": "100",
        "minOffsetsPerTrigger": "10",
        "maxBytesPerTrigger": "4096",
    }
    for text, delay_ms in (
        ("15m", 900_000),
        ("30 s", 30_000),
        ("250", 250),
        ("2 Hours", 7_200_000),
    ):
        options = parse_options({**BASE, **given, "maxTriggerDelay": text}, streaming=True)
        assert options.trigger == TriggerLimits(100, 4096, 10, delay_ms)


def test_a_group_is_a_label_and_retries_are_the_drivers() -> None:
    assert parse_options({**BASE, "groupIdPrefix": "etl"}, streaming=True).client.client_id == "etl"
    options = parse_options(
        {
            **BASE,
            "kafka.group.id": "report",
            "fetchOffset.numRetries": "0",
            "fetchOffset.retryIntervalMs": "7",
        },
        streaming=True,
    )
    client = options.client
    assert (client.client_id, client.tries_count_max, client.retry_backoff_ms) == ("report", 1, 7)


def test_a_pattern_matches_whole_names() -> None:
    options = parse_options(
        {"kafka.bootstrap.servers": "broker:9092", "subscribePattern": "clicks-[0-9]+"},
        streaming=True,
    )
    assert isinstance(options.selection, SubscribePattern)
    assert options.selection.matches("clicks-17")
    assert not options.selection.matches("more-clicks-17")
    assert not options.selection.matches("clicks-17-old")


def test_options_travel_to_executors() -> None:
    options = parse_options({**BASE, "startingOffsets": '{"clicks": {"0": 7}}'}, streaming=True)
    assert pickle.loads(pickle.dumps(options)) == options


def test_headers_are_wanted_only_when_asked_for() -> None:
    assert not wants_headers(BASE)
    assert wants_headers({**BASE, "includeHeaders": "true"})


@pytest.mark.parametrize(
    ("change", "streaming", "sentence"),
    [
        (
            {"kafka.bootstrap.servers": None},
            True,
            "kafka.bootstrap.servers is missing: HOST:PORT of a broker, or several with commas",
        ),
        (
            {"kafka.bootstrap.servers": "broker:port"},
            True,
            "kafka.bootstrap.servers='broker:port': bootstrap address 'broker:port':"
            " port 'port' is not in 1 .. 65535",
        ),
        (
            {"segbroker.bootstrap.servers": "other:9092"},
            True,
            "kafka.bootstrap.servers='broker:9092' and segbroker.bootstrap.servers='other:9092'"
            " are two names of one option with two values; give one",
        ),
        (
            {"subscribe": None},
            True,
            "give exactly one of subscribe, subscribePattern, assign; none given",
        ),
        (
            {"assign": '{"t": [0]}'},
            True,
            "give exactly one of subscribe, subscribePattern, assign; subscribe and assign given",
        ),
        ({"subscribe": " , "}, True, "subscribe=' , ' names no topic"),
        (
            {"subscribe": None, "assign": "clicks"},
            True,
            "assign='clicks' is not JSON like {\"topic\": [0, 1]}",
        ),
        (
            {"subscribe": None, "assign": '{"clicks": [-1]}'},
            True,
            "assign: -1 of topic 'clicks' is not a partition number",
        ),
        (
            {"subscribe": None, "subscribePattern": r"\p{Alpha}+"},
            True,
            r"subscribePattern='\\p{Alpha}+' is not a usable expression:"
            r" bad escape \p at position 0",
        ),
        (
            {"startingOffsets": "first"},
            True,
            "startingOffsets='first' is not 'earliest', 'latest' or JSON like"
            ' {"topic": {"0": 23}}',
        ),
        (
            {"startingOffsets": '{"clicks": {"0": -3}}'},
            True,
            "startingOffsets: -3 for clicks/0 is not an offset (>= 0), -1 (latest) or"
            " -2 (earliest)",
        ),
        (
            {"startingOffsets": '{"clicks": {"zero": 3}}'},
            True,
            "startingOffsets: 'zero' of topic 'clicks' is no partition number",
        ),
        (
            {"startingOffsets": "latest"},
            False,
            "startingOffsets='latest': a batch query from the end would be empty",
        ),
        (
            {"startingOffsets": '{"clicks": {"0": -1}}'},
            False,
            "startingOffsets: -1 for clicks/0: a batch query from the end would be empty",
        ),
        (
            {"endingOffsets": "earliest"},
            False,
            "endingOffsets='earliest': a query that ends at the start would be empty",
        ),
        (
            {"endingOffsets": "latest"},
            True,
            "endingOffsets is an option of a batch query, and this is a stream query",
        ),
        (
            {"maxOffsetsPerTrigger": "10"},
            False,
            "maxOffsetsPerTrigger is an option of a stream query, and this is a batch query",
        ),
        (
            {"maxOffsetsPerTrigger": "0"},
            True,
            "maxOffsetsPerTrigger='0' is not a whole number >= 1",
        ),
        ({"minPartitions": "two"}, True, "minPartitions='two' is not a whole number >= 1"),
        ({"failOnDataLoss": "no"}, True, "failOnDataLoss='no' is not 'true' or 'false'"),
        (
            {"kafka.isolation.level": "committed"},
            True,
            "kafka.isolation.level='committed' is not 'read_committed' or 'read_uncommitted'",
        ),
        (
            {"startingOffsest": "earliest"},
            True,
            "there is no option 'startingoffsest'; did you mean startingOffsets?",
        ),
        (
            {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
            True,
            "minOffsetsPerTrigger=10 is more than maxOffsetsPerTrigger=5: every batch would wait"
            " for maxTriggerDelay",
        ),
        (
            {"minOffsetsPerTrigger": "10"},
            False,
            "minOffsetsPerTrigger is an option of a stream query, and this is a batch query",
        ),
        (
            {"maxTriggerDelay": "soon"},
            True,
            "maxTriggerDelay='soon' is not a duration like 15m, 30s or 500ms",
        ),
        (
            {"maxBytesPerTrigger": "1 MB"},
            True,
            "maxBytesPerTrigger='1 MB' is not a whole number >= 1",
        ),
        (
            {"startingOffsetsByTimestamp": '{"clicks": {"0": -2}}'},
            True,
            "startingOffsetsByTimestamp: -2 for clicks/0 is not a time in ms since 1970",
        ),
        ({"commitOffsetsToGroup": " "}, True, "commitOffsetsToGroup=' ' is empty"),
        (
            {"kafka.auto.offset.reset": "earliest"},
            True,
            "kafka.auto.offset.reset cannot be set: use startingOffsets",
        ),
        (
            {"kafka.security.protocol": "SASL"},
            True,
            "kafka.security.protocol and what belongs to it: security.protocol='SASL' is not one of"
            " PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            {"kafka.sasl.password": "secret", "segbroker.sasl.password": "other"},
            True,
            "kafka.sasl.password=… and segbroker.sasl.password=… are two names of one option with"
            " two values; give one",
        ),
    ],
)
def test_a_malformed_option_is_refused_with_one_sentence(
    change: dict[str, str | None], streaming: bool, sentence: str
) -> None:
    merged = {**BASE, **change}
    given = {name: value for name, value in merged.items() if value is not None}
    with pytest.raises(OptionError) as caught:
        parse_options(given, streaming=streaming)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "name",
    [
        "kafka.request.timeout.ms",
        "kafka.default.api.timeout.ms",
        "kafka.transaction.timeout.ms",
        "kafka.delivery.timeout.ms",
        "kafka.batch.size",
    ],
)
def test_a_number_that_has_no_room_in_a_request_is_refused(name: str) -> None:
    sink = {"kafka.bootstrap.servers": "broker:9092", "topic": "clicks"}
    assert parse_sink_options({**sink, name: "2147483647"}, streaming=False)
    with pytest.raises(OptionError) as refused:
        parse_sink_options({**sink, name: "2147483648"}, streaming=False)
    assert str(refused.value) == f"{name}='2147483648' is more than 2147483647"


@pytest.mark.parametrize("streaming", [False, True])
def test_the_columns_are_fixed(streaming: bool) -> None:
    fixed: list[tuple[str, DataType]] = [
        ("key", BinaryType()),
        ("value", BinaryType()),
        ("topic", StringType()),
        ("partition", IntegerType()),
        ("offset", LongType()),
        ("timestamp", TimestampType()),
        ("timestampType", IntegerType()),
    ]
    source = SegbrokerDataSource(BASE)

    def make(columns: Sequence[tuple[str, DataType]]) -> None:
        asked = StructType([StructField(*column) for column in columns])
        if streaming:
            source.streamReader(asked).getDefaultReadLimit()
        else:
            source.reader(asked)

    make(fixed)
    fixed[1] = ("value", StringType())
    for columns in (fixed, fixed[:1]):
        with pytest.raises(OptionError, match="the columns are fixed"):
            make(columns)


def test_a_stream_of_wrong_options_says_so_whatever_it_is_asked_first() -> None:
    """What `streamReader` itself raises Spark's runner hides behind an error of its own."""
    reader = SegbrokerDataSource({**BASE, "maxOffsetsPerTrigger": "x"}).streamReader(StructType())
    for ask in (
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        reader.initialOffset,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
    ):
        with pytest.raises(OptionError, match="maxOffsetsPerTrigger='x' is not a whole number"):
            ask()
    reader.stop()


def test_spark_is_given_the_sentence_without_the_way_that_it_came() -> None:
    with pytest.raises(OptionError) as malformed:
        SegbrokerDataSource({**BASE, "startingOffsest": "x"}).reader(StructType())
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1"}
    stream = SegbrokerDataSource({**BASE, **nobody}).streamReader(StructType())
    with pytest.raises(SourceUnavailable) as unreachable:
        stream.initialOffset()
    for caught in (malformed, unreachable):
        assert len(traceback.extract_tb(caught.tb)) == 2  # here, and in `plain`
        assert traceback.format_exception(caught.value)[-1].startswith("segbroker.spark.errors.")
        assert not any(
            "During handling" in line for line in traceback.format_exception(caught.value)
        )


def test_what_has_no_effect_is_said_and_passes(caplog: pytest.LogCaptureFixture) -> None:
    parse_options({**BASE, "kafka.receive.buffer.bytes": "1"}, streaming=True)
    assert caplog.messages == ["the option kafka.receive.buffer.bytes has no effect here"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "kafka.sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token",
            "kafka.sasl.oauthbearer.client.id": "orders",
            "kafka.sasl.oauthbearer.client.secret": "hidden",
        },
    ],
)
def test_a_login_by_a_token_is_refused_in_words(more: dict[str, str]) -> None:
    by_token = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(OptionError, match="OAUTHBEARER") as caught:
        parse_options({**BASE, **by_token, **more}, streaming=True)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "kafka.request.timeout.ms"])
def test_a_number_of_more_digits_than_python_reads_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name}='9+' is more than"):
        parse_options({**BASE, name: "9" * 4_301}, streaming=True)
    # It is the value that counts, not the zeros in front.
    limits = parse_options({**BASE, "maxOffsetsPerTrigger": "0" * 4_301 + "7"}, streaming=True)
    assert limits.trigger.offsets_max == 7
    with pytest.raises(OptionError, match="is not a whole number >= 1"):
        parse_options({**BASE, "maxOffsetsPerTrigger": "0" * 4_301}, streaming=True)


def test_a_delay_of_more_digits_than_python_reads_is_longer_than_all_others() -> None:
    delay = {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "9" * 4_301 + "m"}
    assert parse_options({**BASE, **delay}, streaming=True).trigger.delay_ms > 1e18
