"""Configuration: four sources, one result, errors that name key and value."""

import errno
import io
import json
import os
import re
import resource
import threading
from dataclasses import Field
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from segbroker.broker.configuration.config import (
    BrokerConfig,
    InvalidConfig,
    join_address,
    keys,
    merge,
    split_address,
)
from segbroker.broker.configuration.logs import configure
from segbroker.broker.groups.group_keys import GROUP_KEYS
from segbroker.segments.settings.inert_settings import INERT
from segbroker.segments.settings.topic_config import TopicConfig

ROOT = Path(__file__).parent.parent.parent
INTEGERS_MAX: Final = (2**31 - 1, 2**63 - 1)


def test_flags_win_over_the_environment_over_the_file_over_the_defaults() -> None:
    toml = 'listen = "127.0.0.1:1"\npartitions = 11\nlanes = 3\n'
    environment = {"SEGBROKER_PARTITIONS": "12", "SEGBROKER_LANES": "4", "HOME": "/root"}
    config = merge({"lanes": 5, "data": None}, environment, toml)
    assert (config.listen, config.partitions, config.lanes) == ("127.0.0.1:1", 12, 5)
    assert config.data == "segbroker-data"
    assert [config.source(key) for key in ("listen", "partitions", "lanes", "data")] == [
        "file",
        "environment",
        "flag",
        "default",
    ]


def test_without_any_source_the_defaults_stand() -> None:
    assert merge() == BrokerConfig()


@pytest.mark.parametrize("key", ["transaction_max_timeout_ms", "group_max_session_timeout_ms"])
def test_a_longest_time_may_be_the_longest_that_a_client_can_ask_for(key: str) -> None:
    # Who wants no limit in Kafka sets Integer.MAX_VALUE: its own tests do.
    assert getattr(merge(toml_text=f"{key} = 2147483647"), key) == 2_147_483_647


@pytest.mark.parametrize(
    ("flags", "environment", "toml", "words"),
    [
        ({"partitions": 0}, {}, "", ["partitions", "0", "[1, 100000]"]),
        ({}, {"SEGBROKER_LANES": "many"}, "", ["lanes", "'many'"]),
        ({}, {"SEGBROKER_LANE": "3"}, "", ["unknown key 'lane'", "environment"]),
        ({}, {}, "no_such_key = 1", ["unknown key 'no_such_key'", "file"]),
        ({}, {"SEGBROKER_FRAME_BYTE_MAX": "1"}, "", ["did you mean frame_bytes_max?"]),
        ({}, {}, "num.partitions = 4", ["what Kafka calls num.partitions is partitions here"]),
        ({}, {}, "log.retention.ms = 4", ["log.retention.ms is log_retention_ms here"]),
        ({}, {}, "segment.records = 4", ["segbroker topic alter NAME -c segment.records=..."]),
        ({}, {}, "retention_ms = 4", ["retention.ms is set for each topic"]),
        ({}, {"SEGBROKER_PORT": "9999"}, "", ["unknown key 'port' (from the environment)"]),
        ({}, {"SEGBROKER_SERVICE_HOST": "0.0.0.0"}, "", ["unknown key 'service_host'"]),
        ({}, {"SEGBROKER_NUM_PARTITIONS": "4"}, "", ["num.partitions is partitions here"]),
        ({}, {"SEGBROKER_LOG_DIRS": "/data"}, "", ["what Kafka calls log.dirs is data here"]),
        (
            {},
            {},
            "log.retention.hours = 4",
            ["log.retention.hours is log_retention_ms here", "in milliseconds: 14400000"],
        ),
        ({}, {"SEGBROKER_LOG_RETENTION_MINUTES": "-1"}, "", ["in milliseconds: -1"]),
        ({}, {}, "offsets.retention.check.interval.ms = 4", ["unknown key 'offsets'"]),
        ({}, {}, "message.max.bytes = 4", ["message.max.bytes is message_max_bytes here"]),
        ({}, {}, "message_max_bytes = 4", ["message_max_bytes = 4 is outside [61, 2147483647]"]),
        ({"log_cleanup_policy": "none"}, {}, "", ["log_cleanup_policy = 'none' is none of"]),
        ({"log_cleaner_min_cleanable_ratio": "2"}, {}, "", ["cleanable_ratio = '2' "]),
        (
            {"message_max_bytes": 9_000, "log_segment_bytes": 8_000},
            {},
            "",
            ["max.message.bytes", "exceeds segment.bytes=8000"],
        ),
        ({}, {}, "auto.create.topics.enable = true", ["is auto_create_topics here"]),
        ({}, {}, "[broker]\nlanes = 4", ["unknown key 'broker'", "stand at the top level"]),
        ({"data": ""}, {}, "", ["data = ''", "no directory"]),
        ({"idle_timeout_ms": 0}, {}, "", ["idle_timeout_ms = 0", "-1: none"]),
        ({"group_protocols": "consumer"}, {}, "", ["'consumer'", "classic cannot be left out"]),
        (
            {},
            {},
            "group_protocols = 'classic,raft'",
            ["'raft' is none of classic, consumer, share, streams"],
        ),
        ({}, {}, "idle_timeout_ms = '10 sec'", ["'10 sec'", "with a unit: ms, min, s, h, d"]),
        ({}, {}, "frame_bytes_max = '10 MB'", ["'10 MB'", "with a unit: KiB, MiB, GiB"]),
        ({}, {}, "partitions = ", ["not TOML"]),
        ({"durability": "eventually"}, {}, "", ["durability", "'eventually'", "fsync", "disk"]),
        ({"auto_create_topics": "perhaps"}, {}, "", ["auto_create_topics", "'perhaps'"]),
        ({"listen": "9092"}, {}, "", ["listen", "'9092'", "host:port"]),
        ({"listen": "localhost:http"}, {}, "", ["listen", "'localhost:http'"]),
        ({"listen": "::1:9092"}, {}, "", ["listen", "'::1:9092'"]),
        ({"advertised": "host:70000"}, {}, "", ["advertised", "'host:70000'"]),
    ],
)
def test_an_error_names_the_key_and_the_value(
    flags: dict[str, str | int], environment: dict[str, str], toml: str, words: list[str]
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        merge(flags, environment, toml)
    for word in words:
        assert word in str(caught.value)


def test_variables_of_the_command_line_are_not_ours() -> None:
    assert merge({}, {"SEGBROKER_BOOTSTRAP": "h:1", "SEGBROKER_CONFIG": "f"}) == BrokerConfig()


@pytest.mark.parametrize(
    ("text", "size"),
    [("64 MiB", 64 << 20), ("1GiB", 1 << 30), ("4096 KiB", 4 << 20), ("70000", 70_000)],
)
def test_a_size_may_have_a_binary_unit(text: str, size: int) -> None:
    assert merge({"ingest_bytes_max": text}).ingest_bytes_max == size
    assert merge({"cleaner_buffer_bytes": text}).cleaner_buffer_bytes == size


def test_what_kubernetes_says_of_a_service_called_segbroker_is_not_ours() -> None:
    links = {
        "SEGBROKER_SERVICE_HOST": "10.0.0.1",
        "SEGBROKER_SERVICE_PORT": "9092",
        "SEGBROKER_SERVICE_PORT_KAFKA": "9092",
        "SEGBROKER_PORT": "tcp://10.0.0.1:9092",
        "SEGBROKER_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "SEGBROKER_PORT_9092_TCP_PROTO": "tcp",
        "SEGBROKER_PORT_9092_TCP_PORT": "9092",
        "SEGBROKER_PORT_9092_TCP_ADDR": "10.0.0.1",
    }
    external = {name.replace("SEGBROKER", "SEGBROKER_EXTERNAL"): links[name] for name in links}
    assert merge({}, links) == merge({}, links | external) == merge({}, external) == BrokerConfig()
    with pytest.raises(InvalidConfig, match="unknown key 'service_host'"):
        merge({}, {"SEGBROKER_SERVICE_HOST": "10.0.0.1", **external})
    with pytest.raises(InvalidConfig, match="unknown key 'porta'"):
        merge({}, {"SEGBROKER_PORTA": "tcp://10.0.0.1:9092", **links})


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250 ms", 250), ("10s", 10_000), ("5 min", 300_000), ("1 h", 3_600_000), ("70", 70)],
)
def test_a_time_may_have_a_unit(text: str, ms: int) -> None:
    assert merge({"idle_timeout_ms": text}).idle_timeout_ms == ms


def test_a_ratio_may_be_a_number_of_toml() -> None:
    assert merge(toml_text="log_cleaner_min_cleanable_ratio = 0.3") == merge(
        toml_text='log_cleaner_min_cleanable_ratio = "0.3"'
    )
    with pytest.raises(InvalidConfig, match="log_cleaner_min_cleanable_ratio"):
        merge(toml_text="log_cleaner_min_cleanable_ratio = true")


def test_a_unit_is_no_part_of_a_count() -> None:
    with pytest.raises(InvalidConfig, match="partitions"):
        merge({"partitions": "4 KiB"})


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("[::1]:0", "::1", 0),
        ("broker.local:1", "broker.local", 1),
    ],
)
def test_an_address_is_split_and_joined(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)
    assert join_address(host, port) == address


def test_the_page_lists_every_key_as_the_code_has_it_and_no_other() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    page = page.partition("## Settings that change")[0]
    rows = [line for line in page.splitlines() if re.match(r"\| `\w+` \|", line)]
    assert rows == [row(spec) for spec in keys()]


def row(spec: Field[Any]) -> str:
    """A key's row of the page: its name, default, bounds, name in Kafka, meaning."""
    least, most, choices = (spec.metadata[name] for name in ("least", "most", "choices"))
    if isinstance(spec.default, bool):
        allowed = "true, false"
    elif isinstance(spec.default, int):
        # Bounds of the type itself are none to a reader.
        allowed = f"{least:,} or more" if most in INTEGERS_MAX else f"{least:,} to {most:,}"
    else:
        allowed = ", ".join(choices) or "text"
    kafka = f"`{spec.metadata['kafka']}`" if spec.metadata["kafka"] else ""
    changes = "running" if spec.metadata["dynamic"] else "start"
    columns = f"`{_shown(spec.default)}`", allowed, kafka, changes, spec.metadata["doc"]
    return f"| `{spec.name}` | {' | '.join(columns)} |"


def test_the_page_lists_every_topic_setting_with_its_default_and_words() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text().partition("## Topic settings")[2]
    rows = re.findall(r"^\| `([\w.]+)` \| `([^|]*)` \| (.*) \|$", page, flags=re.MULTILINE)
    settings = [one for one in TopicConfig().describe() if one.name not in INERT]
    assert rows == [(one.name, one.default, one.documentation) for one in settings]
    # Those without effect share the rows of a table of their own.
    assert all(f"`{name}`" in page for name in INERT)


def test_the_pages_list_every_setting_of_groups() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    listed = re.findall(r"^\| `(.+)` \| ", page, flags=re.MULTILINE)
    found = {name for cell in listed for name in cell.split("`, `")}
    assert GROUP_KEYS.keys() <= found
    of_shares = (ROOT / "docs" / "share-groups.md").read_text()
    for name, key in GROUP_KEYS.items():
        if name.startswith("share.") and not key.of_broker:
            assert f"| `{name}` | `{key.default}` |" in of_shares


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value != "" else '""'


class FullDisk(io.StringIO):
    """A stream whose disk is full, until there is room."""

    has_room = False

    def flush(self) -> None:
        if not self.has_room:
            self.seek(0)
            self.truncate()
            raise OSError(errno.ENOSPC, "No space left on device")


class TooLarge:
    def __repr__(self) -> str:
        raise MemoryError


def test_a_log_that_cannot_be_written_loses_its_lines_and_says_how_many() -> None:
    stream, before = FullDisk(), structlog.get_config()
    try:
        configure(BrokerConfig(log_format="json"), stream)
        for number in range(2):
            structlog.get_logger().warning("refused", number=number)
        stream.has_room = True
        structlog.get_logger().warning("without memory", number=TooLarge())
        for number in range(2):
            structlog.get_logger().warning("written", number=number)
    finally:
        structlog.configure(**before)
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["number"], first["lines_lost"]) == ("written", 0, 3)
    assert (second["event"], second["number"], "lines_lost" in second) == ("written", 1, False)


def test_behind_a_line_that_a_full_disk_took_in_part_the_next_begins_a_line(tmp_path: Path) -> None:
    """The one that says how many were lost is to be read by programs, too."""
    before, limits = structlog.get_config(), resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "broker.log"
    with path.open("w") as stream:
        try:
            configure(BrokerConfig(log_format="json"), stream)
            structlog.get_logger().warning("written", number=0)
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))
            for number in range(3):
                structlog.get_logger().warning("refused", number=number)
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            structlog.get_logger().warning("written", number=1)
            structlog.get_logger().warning("written", number=2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            structlog.configure(**before)
    first, cut, *rest = path.read_text().splitlines()
    assert (len(cut), json.loads(first)["number"]) == (20, 0)
    told = [json.loads(line) for line in rest]
    assert [(row["number"], row.get("lines_lost")) for row in told] == [(1, 3), (2, None)]


@pytest.mark.parametrize("size", [1_000, 10_000])
def test_a_reader_of_the_log_that_has_stopped_holds_nobody_up(size: int) -> None:
    reads, writes = os.pipe()
    before = structlog.get_config()
    ended = threading.Event()
    with open(reads, "rb") as reader, open(writes, "w") as stream:

        def tell() -> None:
            for number in range(200):
                structlog.get_logger().warning("told", number=number, text="x" * size)
            ended.set()

        try:
            configure(BrokerConfig(log_format="json"), stream)
            threading.Thread(target=tell, daemon=True).start()
            assert ended.wait(60), "it waits for its reader"
            os.set_blocking(reads, False)
            first = reader.read()
            structlog.get_logger().warning("read", number=0)
            structlog.get_logger().warning("read", number=1)
            lines = (first + reader.read()).splitlines()
        finally:
            structlog.configure(**before)
    told = [json.loads(line) for line in lines if line.endswith(b"}")]
    assert len(lines) - len(told) <= 1, "the one that was cut"
    assert [row["number"] for row in told[:-2]] == list(range(len(told) - 2))
    assert [row["event"] for row in told[-2:]] == ["read", "read"]
    assert told[-2]["lines_lost"] == 200 - (len(told) - 2)
    assert "lines_lost" not in told[-1]


def test_what_a_client_calls_itself_cannot_write_to_a_terminal() -> None:
    stream, before = io.StringIO(), structlog.get_config()
    try:
        configure(BrokerConfig(log_format="console"), stream)
        structlog.get_logger().warning("malformed_request", client_id="\x1b]0;owned\x07é")
    finally:
        structlog.configure(**before)
    assert "\\x1b]0;owned\\x07\\xe9" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("given", "coloured"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_the_log_on_a_terminal_is_in_colour_unless_the_terminal_or_the_user_has_none(
    given: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    stream, before = Terminal(), structlog.get_config()
    try:
        configure(BrokerConfig(), stream)
        structlog.get_logger().warning("told")
    finally:
        structlog.configure(**before)
    assert "told" in stream.getvalue()
    assert ("\x1b[" in stream.getvalue()) == coloured
