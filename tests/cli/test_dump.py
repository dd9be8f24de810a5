"""`segbroker dump` on the files of a real daemon, whole and damaged."""

import json
import shutil
import signal
from base64 import b64encode
from pathlib import Path

import pytest
from click.testing import CliRunner

from segbroker.cli.main import segbroker as segbroker_command
from segbroker.client import Admin, Producer
from segbroker.protocol.scram import ScramCredential, ScramMechanism
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.credentials import USER_SET, USERS_SECRET, rows_of
from segbroker.segments.metadata.generations import GENERATION, Generation, KeptMember
from segbroker.segments.metadata.share_groups import STATES, ShareRow, Span, states_fields
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.frames import VERSION, decode_header, encode_header

from ..segments.tools import append, batch_of
from ..support.daemon import start
from .conftest import in_process as segbroker

# Ten batches of 1,000 records of 100 bytes go to 1 MiB in about: segments 0 and 1.
RECORDS = 10
BATCHES = 12


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of partition 0 of topic `t`: three segments, batches of ten records."""
    data = tmp_path_factory.mktemp("dump") / "data"
    daemon = start(data)
    with Admin(daemon.address) as admin:
        admin.create_topic("t", partitions=1, config={"segment.bytes": "16384"})
    with Producer(daemon.address) as producer:
        for n in range(BATCHES):
            values = [b"%02d-%d " % (n, i) + b"x" * 300 for i in range(RECORDS)]
            producer.send_many("t", values, partition=0).result()
    daemon.stop()
    return data / "topics" / "t" / "partition_0"


@pytest.fixture
def copy(partition: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(partition, tmp_path / "partition_0"))


def name(kind: str) -> str:
    return f"t_partition_0{kind}"


def test_every_file_of_a_broker_that_was_stopped_is_whole(partition: Path) -> None:
    root = partition.parents[2]
    kinds = set()
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix in (
            ".log",
            ".index",
            ".manifest",
            ".producers",
            ".msgpack",
        ):
            run = segbroker("dump", str(path))
            assert run.returncode == 0, run.stdout.decode()
            assert run.stdout.decode().splitlines()[-1] == "no damage found"
            assert run.stderr == b""
            kinds.add(path.suffix)
    assert kinds >= {".log", ".index", ".manifest", ".msgpack"}


def test_a_log_shows_its_batches(partition: Path) -> None:
    run = segbroker("dump", "--json", str(partition / name("_segment_0.log")))
    report = json.loads(run.stdout)
    assert (report["kind"], report["torn"], report["damage"]) == ("segment log", [], [])
    first, second = report["rows"][:2]
    assert (first["position"], first["offset"], first["last_offset"]) == (0, 0, 9)
    assert (second["position"], second["offset"]) == (first["size"], 10)
    assert (first["records"], first["codec"], first["flags"]) == (10, "none", [])
    assert report["records"] == 10 * len(report["rows"])


@pytest.mark.parametrize("topic", ["wal-of-berlin", "free-trials", "kept-1"])
def test_a_log_is_one_whatever_its_topic_is_called(
    partition: Path, tmp_path: Path, topic: str
) -> None:
    log = tmp_path / f"{topic}_partition_0_segment_0.log"
    shutil.copy(partition / name("_segment_0.log"), log)
    report = json.loads(segbroker("dump", "--json", str(log)).stdout)
    assert (report["kind"], report["damage"]) == ("segment log", [])


@pytest.mark.parametrize("words", [[], ["-r"]])
def test_an_offset_outside_the_checksum_that_cannot_be_is_damage(
    copy: Path, words: list[str]
) -> None:
    log = copy / name("_segment_0.log")
    content = log.read_bytes()
    log.write_bytes((-(2**32)).to_bytes(8, "big", signed=True) + content[8:])
    run = segbroker("dump", *words, str(log))
    assert run.returncode == 8
    assert "DAMAGE: bad batch at byte 0, " in run.stdout.decode()
    assert "base offset -4294967296" in run.stdout.decode()


def test_a_log_shows_its_records_when_asked(partition: Path) -> None:
    run = segbroker("dump", "-r", str(partition / name("_segment_0.log")))
    assert "00-0 xxx" in run.stdout.decode()
    assert "00-9 xxx" in run.stdout.decode()


def test_a_flipped_bit_is_damage_at_its_batch_and_the_batches_behind_are_found(
    copy: Path,
) -> None:
    log = copy / name("_segment_0.log")
    content = bytearray(log.read_bytes())
    whole = json.loads(segbroker("dump", "--json", str(log)).stdout)["rows"]
    content[whole[1]["position"] + 100] ^= 1
    log.write_bytes(content)
    run = segbroker("dump", "--json", str(log))
    report = json.loads(run.stdout)
    assert run.returncode == 8
    assert report["rows"] == [whole[0], *whole[2:]]
    (sentence,) = report["damage"]
    assert sentence.startswith(
        f"bad batch at byte {whole[1]['position']}, {whole[1]['size']} bytes"
    )
    assert "CRC" in sentence
    readable = segbroker("dump", str(log))
    assert readable.returncode == 8
    assert readable.stdout.decode().splitlines()[-1] == f"DAMAGE: {sentence}"


def test_a_torn_tail_is_said_and_is_no_damage(copy: Path) -> None:
    last = max(copy.glob("*.log"), key=lambda path: (path.stat().st_size > 0, path.name))
    content = last.read_bytes()
    last.write_bytes(content[:-5])
    run = segbroker("dump", str(last))
    assert run.returncode == 0
    assert "torn tail at byte " in run.stdout.decode()
    last.write_bytes(content + bytes(100))
    assert (
        f"torn tail at byte {len(content)}, 100 bytes: zeros"
        in segbroker("dump", str(last)).stdout.decode()
    )


def test_a_torn_tail_before_a_later_segment_is_damage(copy: Path) -> None:
    log = copy / name("_segment_0.log")
    log.write_bytes(log.read_bytes()[:-5])
    run = segbroker("dump", str(log))
    assert run.returncode == 8
    assert "; a later segment exists" in run.stdout.decode()


def test_the_later_segment_of_a_compacted_log_may_have_any_higher_number(copy: Path) -> None:
    log = copy / name("_segment_0.log")
    log.write_bytes(log.read_bytes()[:-5])
    (copy / name("_segment_1.log")).unlink()  # as if the next stood for it, too
    run = segbroker("dump", str(log))
    assert run.returncode == 8
    assert "; a later segment exists" in run.stdout.decode()


def test_an_index_is_checked_against_its_log(copy: Path) -> None:
    index, log = copy / name("_segment_0.index"), copy / name("_segment_0.log")
    content = bytearray(log.read_bytes())
    content[200] ^= 1
    log.write_bytes(content)
    run = segbroker("dump", str(index))
    assert run.returncode == 8
    assert "DAMAGE: block 0: the XXH3 of its entry is not that of" in run.stdout.decode()
    log.unlink()
    alone = segbroker("dump", str(index))
    assert alone.returncode == 0
    assert "not checked, the log is not beside it" in alone.stdout.decode()


@pytest.mark.parametrize("position", [0, 9, 30])
def test_a_damaged_index_header_is_damage(copy: Path, position: int) -> None:
    index = copy / name("_segment_0.index")
    content = bytearray(index.read_bytes())
    content[position] ^= 1
    index.write_bytes(content)
    assert segbroker("dump", str(index)).returncode == 8


def test_a_damaged_manifest_row_is_damage_and_a_cut_one_is_a_torn_tail(copy: Path) -> None:
    path = copy / name(".manifest")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert segbroker("dump", str(path)).returncode == 8
    path.write_bytes(content[:-1])
    cut = segbroker("dump", str(path))
    assert cut.returncode == 0
    assert "torn tail" in cut.stdout.decode()


def test_the_copy_of_a_log_start_a_segment_written_anew_and_one_in_quarantine_are_read_as_well(
    tmp_path: Path,
) -> None:
    manager = DiskManager(str(tmp_path), flushers=0, now_ms=1_000)
    with manager:
        manager.create_topic("s", 1, TopicConfig({}))
        handler = manager.get_handler("s", 0)
        for value in (b"one", b"two", b"three"):
            append(handler, batch_of(value))
        handler.delete_records_before(2)
        paths = handler._log.paths
    code, text = dumped("--json", paths.start)
    (row,) = json.loads(text)["rows"]
    assert (code, row["kind"], row["base_offset"]) == (0, "start", 2)
    log = Path(paths.log(0)).read_bytes()
    Path(paths.cleaned(0)).write_bytes(log)
    Path(paths.folder, "quarantine").mkdir()
    kept = Path(paths.folder, "quarantine", f"{Path(paths.log(0)).name}.17")
    kept.write_bytes(log)
    shown = [dumped("--records", str(path)) for path in (paths.log(0), paths.cleaned(0), kept)]
    assert [code for code, _ in shown] == [0, 0, 0]
    assert len({text.partition("\n")[2] for _, text in shown}) == 1
    assert dumped(f"{paths.folder}/quarantine.7")[0] == 2


def test_a_snapshot_shows_the_topics_and_a_flipped_bit_is_damage(
    partition: Path, tmp_path: Path
) -> None:
    snapshot = max((partition.parents[2] / "meta").glob("*.msgpack"))
    report = json.loads(segbroker("dump", "--json", str(snapshot)).stdout)
    (row,) = report["rows"]
    assert (row["topic"], row["partitions"], row["config"]) == ("t", 1, {"segment.bytes": "16384"})
    content = bytearray(snapshot.read_bytes())
    content[-3] ^= 1
    damaged = tmp_path / snapshot.name
    damaged.write_bytes(content)
    run = segbroker("dump", str(damaged))
    assert run.returncode == 8
    assert "does not match its size or checksum" in run.stdout.decode()


def test_generations_of_groups_are_seen_in_the_write_ahead_log_and_in_the_snapshot(
    tmp_path: Path,
) -> None:
    member = KeptMember("m-1", None, "app", "h", 1_000, 2_000, {"range": b"t"}, b"all")
    kept = Generation(3, "consumer", "range", "m-1", (member,))
    with DiskManager(str(tmp_path / "data")) as manager:
        manager.record_now(GENERATION, group="billing", **kept.fields())
        log = min((tmp_path / "data" / "wal").rglob("wal-*.log"))  # the next one may be ready
        (row,) = json.loads(segbroker("dump", "--json", str(log)).stdout)["rows"]
    says = row["says"]
    assert (says["group"], says["generation"], says["leader"]) == ("billing", 3, "m-1")
    assert says["members"][0][:3] == ["m-1", None, "app"]
    (snapshot,) = (tmp_path / "data" / "meta").glob("*.msgpack")
    report = json.loads(segbroker("dump", "--json", str(snapshot)).stdout)
    assert report["generations"] == {"billing": "3 with 1 members"}


def test_groups_of_the_consumer_protocol_are_seen_in_both_too(tmp_path: Path) -> None:
    says = {"m-1": [None, None, "app", "h", 1_000, ["t"], "", "", None]}
    has = {"m-1": [4, 3, "stable", [[b"t" * 16, [0]]], [], None]}
    fields = {"epoch": 4, "assignment_epoch": 4, "assignor": "range", "whole": True}
    with DiskManager(str(tmp_path / "data")) as manager:
        manager.record_now("consumer_group", group="billing", says=says, has=has, **fields)
        log = min((tmp_path / "data" / "wal").rglob("wal-*.log"))  # the next one may be ready
        (row,) = json.loads(segbroker("dump", "--json", str(log)).stdout)["rows"]
    assert row["says"]["group"] == "billing"
    assert list(row["says"]["says"]) == ["m-1"]
    (snapshot,) = (tmp_path / "data" / "meta").glob("*.msgpack")
    report = json.loads(segbroker("dump", "--json", str(snapshot)).stdout)
    assert report["consumer_groups"] == {"billing": "epoch 4 with 1 members"}


def test_share_groups_are_seen_in_both_too(tmp_path: Path) -> None:
    with DiskManager(str(tmp_path / "data")) as manager:
        topic_id = manager.create_topic("t", 4, TopicConfig({})).topic_id
        row = ShareRow("t", topic_id, 3, 5, [Span(7, 9, 2, 1), Span(11, 11, 0, 2)])
        manager.record_now(STATES, **states_fields("workers", [row]))
        log = min((tmp_path / "data" / "wal").rglob("wal-*.log"))  # the next one may be ready
        rows = json.loads(segbroker("dump", "--json", str(log)).stdout)["rows"]
    assert rows[-1]["says"]["group"] == "workers"
    assert rows[-1]["says"]["rows"][0][2:] == [3, 5, [[7, 9, 2, 1], [11, 11, 0, 2]]]
    (snapshot,) = (tmp_path / "data" / "meta").glob("*.msgpack")
    report = json.loads(segbroker("dump", "--json", str(snapshot)).stdout)
    assert report["share_groups"] == {"workers": {"t-3": "from 5, 2 ranges above"}}


def test_what_passwords_are_checked_by_is_not_shown(tmp_path: Path) -> None:
    secrets = [b"from this salts are made up", b"the salt", b"its stored key", b"its server key"]
    credential = ScramCredential(secrets[1], 4_096, secrets[2], secrets[3])
    rows = rows_of({ScramMechanism.SHA_512: credential})
    said = b""
    with DiskManager(str(tmp_path / "data")) as manager:
        manager.record_now(USERS_SECRET, secret=secrets[0])
        manager.record_now(USER_SET, name="alice", rows=rows)
        log = min((tmp_path / "data" / "wal").rglob("wal-*.log"))  # the next one may be ready
        said += segbroker("dump", str(log)).stdout
        dumped = segbroker("dump", "--json", str(log)).stdout
    of_secret, of_user = (row["says"] for row in json.loads(dumped)["rows"])
    assert of_secret == {"seq": of_secret["seq"], "kind": "users_secret"}
    assert (of_user["name"], of_user["credentials"]) == ("alice", {"SCRAM-SHA-512": 4_096})
    (snapshot,) = (tmp_path / "data" / "meta").glob("*.msgpack")
    said += dumped + segbroker("dump", "--json", str(snapshot)).stdout
    for secret in secrets:
        assert secret not in said
        assert b64encode(secret) not in said


def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    run = segbroker("dump", str(tmp_path / "notes.txt"))
    assert run.returncode == 2
    assert "notes.txt is none of *.log" in run.stderr.decode()
    assert segbroker("dump", str(tmp_path / "missing.log")).returncode == 2
    with (tmp_path / "disk.img").open("wb") as image:
        image.truncate(1 << 40)  # more than fits into any memory: it is not read
    image_run = segbroker("dump", str(tmp_path / "disk.img"))
    assert (image_run.returncode, "is none of" in image_run.stderr.decode()) == (2, True)


def dumped(*words: str) -> tuple[int, str]:
    """The command in this process: exit code and what it printed."""
    run = CliRunner().invoke(segbroker_command, ["dump", *words])
    return run.exit_code, run.stdout


def test_the_write_ahead_log_shows_its_frames_and_damage_in_them(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data")
    with Admin(daemon.address) as admin:
        admin.create_topic("t", partitions=1)
    with Producer(daemon.address) as producer:
        for n in range(5):
            producer.send("t", b"%d" % n, partition=0).result()
    daemon.stop(signal.SIGKILL)
    of_partition: list[Path] = []
    for path in sorted((tmp_path / "data" / "wal").rglob("*.log")):
        code, text = dumped("--json", str(path))
        report = json.loads(text)
        assert (code, report["damage"]) == (0, [])
        for row in report["rows"]:
            if row["type"] == "batches" and path not in of_partition:
                of_partition.append(path)
    (path,) = of_partition
    report = json.loads(dumped("--json", str(path))[1])
    batches = [row for row in report["rows"] if row["type"] == "batches"]
    assert [row["offset"] for row in batches] == [0, 1, 2, 3, 4]
    assert batches[0]["says"] == "1 batches, offsets 0-0"
    content = bytearray(path.read_bytes())
    whole = decode_header(content)
    assert whole is not None
    content[batches[1]["position"] + 70] ^= 1
    path.write_bytes(content)
    code, text = dumped(str(path))
    assert code == 8
    missing = f"1 frames from lsn {batches[1]['lsn']} on are not there, and they were durable"
    assert f"DAMAGE: {missing}" in text
    content[20] ^= 1
    path.write_bytes(content)
    code, text = dumped(str(path))
    assert code == 8
    assert "the first header is damaged: its copy stands in" in text
    content[2048 + 20] ^= 1
    path.write_bytes(content)
    assert "the first header is damaged: its copy stands in" in dumped(str(path))[1]
    content[-20] ^= 1
    path.write_bytes(content)
    code, text = dumped(str(path))
    assert code == 8
    assert "the header is damaged" in text
    later = encode_header(whole._replace(version=VERSION + 1))
    path.write_bytes(later + content[len(later) :])
    code, text = dumped(str(path))
    assert code == 8
    assert f"{path.name} has format {VERSION + 1}, this version reads" in text


NAMES = ("s_segment_0.log", "s_segment_0.index", "s.manifest", "s.producers", "snapshot-1.msgpack")


@pytest.mark.parametrize("name", [*NAMES, "wal-3.log"])
@pytest.mark.parametrize("content", [b"", b"x", bytes(300), bytes(range(256)) * 4, b"SBWL" * 20])
def test_any_bytes_get_an_answer_and_no_traceback(
    name: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    code, text = dumped(str(tmp_path / name))
    assert code in (0, 8), text
    assert json.loads(dumped("--json", str(tmp_path / name))[1])["size"] == len(content)
