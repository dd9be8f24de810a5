"""`segbroker verify` on real directories: every kind of damage is named, explained and mended."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner

from segbroker.cli.main import segbroker as segbroker_command
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.files.manifest import RowKind, decode_manifest
from segbroker.segments.settings.topic_config import TopicConfig

from ..segments.tools import append, batch_of
from ..support.daemon import start
from ..support.waiting import within_one_of
from .conftest import environment, in_process, segbroker

RECORDS = 15
CONFIG = {"segment.bytes": "512", "index.interval.bytes": "4096"}


def make(root: Path, *, closed: bool = True, **config: str) -> Path:
    """A data directory with a topic of one partition, three records of 60 bytes to a segment."""
    manager = DiskManager(str(root), flushers=0, now_ms=1_000)
    manager.open()
    overrides = {**CONFIG, **{key.replace("_", "."): value for key, value in config.items()}}
    manager.create_topic("t", 1, TopicConfig(overrides))
    handler = manager.get_handler("t", 0)
    for number in range(RECORDS):
        append(handler, batch_of(b"%03d" % number + b"x" * 57, producer=(7, 0, number)))
    if closed:
        manager.close()
        return root
    crashed = root.with_name(root.name + "-crashed")
    shutil.copytree(root, crashed)
    manager.close()
    return crashed


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("verify") / "data")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("verify") / "data", closed=False)


@pytest.fixture
def data(closed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(closed, tmp_path / "data"))


@pytest.fixture
def torn(crashed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crashed, tmp_path / "data"))


def folder(root: Path) -> Path:
    return root / "topics" / "t" / "partition_0"


def file(root: Path, kind: str) -> Path:
    return folder(root) / f"t_partition_0{kind}"


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def digest(root: Path) -> dict[str, str]:
    """Every file and directory with its content and times."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (
            f"{status.st_size} {status.st_mtime_ns} {hashlib.sha256(content).hexdigest()}"
        )
    return found


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """The command configures the log of its process; here that is ours."""
    yield
    structlog.reset_defaults()


def verify(root: Path, *flags: str) -> tuple[int, dict[str, Any]]:
    """In this process: a start of Python takes longer than the check."""
    run = CliRunner().invoke(segbroker_command, ["verify", "--json", *flags, str(root)])
    assert run.exit_code in (0, 8), run.output
    return run.exit_code, json.loads(run.stdout)


def values(root: Path) -> list[int]:
    """Offsets of the records that can be read."""
    run: subprocess.CompletedProcess[bytes]
    daemon = start(root)
    try:
        run = in_process(
            "consume", "-b", daemon.address, "t", "-e", "--on-gap", "skip", "-f", "%o\\n"
        )
        if run.returncode == 2:  # without gaps in the command yet
            run = in_process("consume", "-b", daemon.address, "t", "-e", "-f", "%o\\n")
    finally:
        daemon.stop()
    return [int(line) for line in run.stdout.split()]


def test_a_whole_directory_is_clean_and_not_a_byte_changes(data: Path) -> None:
    before = digest(data)
    code, result = verify(data)
    assert (code, result["findings"], result["damaged"]) == (0, [], 0)
    assert result["files"] > 10
    assert result["bytes"] > 2_000
    run = in_process("verify", str(data))
    assert run.stdout.decode().endswith(" bytes: 0 damaged, 0 offsets lost, 0 notes\n")
    assert digest(data) == before


def test_a_backup_on_a_file_system_that_cannot_be_written_is_checked(data: Path) -> None:
    """A snapshot, say: in a namespace of mounts of its own."""
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 77'
    check = '"$0" -m segbroker.cli verify "$1"'
    run = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", f"{mount}; {check}",
         sys.executable, str(data)],
        env=environment(), capture_output=True, check=False,
    )  # fmt: skip
    if b"unshare:" in run.stderr or run.returncode == 77:
        pytest.skip("no namespace of mounts here")
    assert (run.returncode, run.stderr) == (0, b"")
    assert run.stdout.decode().endswith(" 0 damaged, 0 offsets lost, 0 notes\n")


def cut(root: Path) -> None:
    path = file(root, "_segment_4.log")
    path.write_bytes(path.read_bytes()[:-5])


def swap(root: Path) -> None:
    one, other = file(root, "_segment_1.log"), file(root, "_segment_2.log")
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def copy_in(root: Path) -> None:
    shutil.copy(file(root, "_segment_0.log"), file(root, "_segment_700.log"))
    file(root, ".manifest").unlink()


def put_an_older_manifest_back(root: Path) -> None:
    """One that lacks the row of a deletion by request, as if it were cut there."""
    before = file(root, ".manifest").read_bytes()
    manager = DiskManager(str(root), flushers=0, now_ms=1_000)
    manager.open()
    manager.get_handler("t", 0).delete_records_before(4)
    manager.close()
    file(root, ".manifest").write_bytes(before)


DAMAGE: dict[str, tuple[Callable[[Path], object], str, list[tuple[int, int]]]] = {
    "a flipped bit in a sealed segment": (
        lambda root: flip(file(root, "_segment_1.log"), 200),
        "it is damaged at byte 129 (valid batches follow)",
        [(4, 5)],
    ),
    "a flipped offset in a sealed segment": (
        lambda root: flip(file(root, "_segment_1.log"), 7),
        "it is damaged at byte 0 (valid batches follow)",
        [(3, 4)],
    ),
    "a missing sealed segment": (
        lambda root: file(root, "_segment_2.log").unlink(),
        "the file is missing",
        [(6, 9)],
    ),
    "a short sealed segment": (
        lambda root: file(root, "_segment_3.log").write_bytes(
            file(root, "_segment_3.log").read_bytes()[:100]
        ),
        "it is damaged at byte 0 (no valid batch follows)",
        [(9, 12)],
    ),
    "an empty sealed segment": (
        lambda root: file(root, "_segment_3.log").write_bytes(b""),
        "it is damaged at byte 0 (records are missing behind it)",
        [(9, 12)],
    ),
    "two segments swapped": (
        swap,
        "it is a segment of another log, or of another place in this one",
        [(3, 6), (6, 9)],
    ),
    "the end of the last segment, vouched for": (
        cut,
        "it is damaged at byte 258 (no valid batch follows)",
        [(14, 15)],
    ),
    "a flipped bit in an index": (
        lambda root: flip(file(root, "_segment_1.index"), 60),
        "the index is wrong: block 0 has another checksum",
        [],
    ),
    "an index of another segment": (
        lambda root: shutil.copy(file(root, "_segment_2.index"), file(root, "_segment_1.index")),
        "the index is wrong: base offset 6, the segment has 3",
        [],
    ),
    "a damaged manifest header": (
        lambda root: flip(file(root, ".manifest"), 3),
        "the header is damaged",
        [],
    ),
    "a damaged manifest row": (
        lambda root: flip(file(root, ".manifest"), 32 + 2 * 64 + 10),
        "the row at byte 160 is damaged",
        [],
    ),
    "a manifest that lacks a row": (
        put_an_older_manifest_back,
        "rows that were synced are missing at its end",
        [],
    ),
    "a missing manifest": (
        lambda root: file(root, ".manifest").unlink(),
        "the manifest is missing, unreadable or of another log",
        [],
    ),
    "a damaged producers' state": (
        lambda root: flip(file(root, ".producers"), 30),
        "the producers' state is damaged",
        [],
    ),
    "a segment of a number that cannot be": (
        copy_in,
        "it is no segment of this log",
        [],
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named_without_a_write_then_repaired_and_then_gone(kind: str, data: Path) -> None:
    do, text, lost = DAMAGE[kind]
    do(data)
    before = digest(data)
    code, result = verify(data)
    assert code == 8
    assert digest(data) == before
    findings = [one for one in result["findings"] if one["level"] == "damage"]
    assert any(one["text"].startswith(text) for one in findings), findings
    assert [(one["from"], one["to"]) for one in findings if "from" in one] == lost
    assert result["offsets_lost"] == sum(end - begin for begin, end in lost)

    code, result = verify(data, "--repair")
    assert code == 8  # it was there: who scripts a repair hears of it
    assert [one for one in result["left"] if one["level"] == "damage"] == []
    gaps = [(one["from"], one["to"]) for one in result["repairs"] if one["what"] == "gap"]
    assert gaps == lost
    code, result = verify(data)
    assert (code, result["damaged"]) == (0, 0)


LEFTOVERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a torn tail": (
        lambda root: file(root, "_segment_4.log").write_bytes(
            file(root, "_segment_4.log").read_bytes() + b"\0" * 7 + b"\1" * 20
        ),
        "27 bytes of a write that was not finished at byte 387 (no valid batch follows)",
    ),
    "a tail of zeros": (
        lambda root: file(root, "_segment_4.log").write_bytes(
            file(root, "_segment_4.log").read_bytes() + bytes(100)
        ),
        "100 bytes of a write that was not finished at byte 387 (zeros follow)",
    ),
    "a missing index": (
        lambda root: file(root, "_segment_1.index").unlink(),
        "the index is missing",
    ),
    "an index that was not written": (
        lambda root: file(root, "_segment_1.index").write_bytes(bytes(64)),
        "the index is wrong",
    ),
    "an index without a log": (
        lambda root: file(root, "_segment_99.index").write_bytes(b"x"),
        "an index without a log",
    ),
    "an interrupted replacement": (
        lambda root: file(root, ".manifest.tmp").write_bytes(b"x"),
        "left over from a replacement that was interrupted",
    ),
    "a failed sync that nobody came to mend": (
        lambda root: file(root, ".unsynced").write_bytes(b"5\n"),
        "a sync of this log has failed",
    ),
    "a failed sync that has cost the end of the log": (
        lambda root: file(root, ".unsynced").write_bytes(b"%019d\n" % 900_000),
        "a sync of this log has failed when it ended at offset 900000, and it ends at ",
    ),
    "half a manifest row": (
        lambda root: file(root, ".manifest").write_bytes(
            file(root, ".manifest").read_bytes() + b"\1" * 10
        ),
        "10 bytes of a row that was not written whole",
    ),
    "a deleted topic": (
        lambda root: (root / "topics" / "~0123").mkdir(),
        "the directory of a deleted topic",
    ),
    "a topic that was not created": (
        lambda root: (root / "topics" / "u" / "partition_0").mkdir(parents=True),
        "the directory of a topic that does not exist",
    ),
    "a partition that was not made": (
        lambda root: (root / "topics" / "t" / "partition_7").mkdir(),
        "the directory of a partition that the topic does not have",
    ),
    "a file of somebody": (
        lambda root: (root / "notes.txt").write_bytes(b"x"),
        "not a file of the broker",
    ),
}


def test_a_copy_of_a_topic_is_told_as_what_it_is_and_kept_aside(data: Path) -> None:
    shutil.copytree(data / "topics" / "t", data / "topics" / "copy")
    before = digest(data / "topics" / "copy")
    code, result = verify(data)
    assert code == 8
    (found,) = result["findings"]
    assert found["text"].startswith("the directory of a topic that does not exist, with records")
    assert found["action"] == "it is moved to quarantine/"
    code, result = verify(data, "--repair")
    assert (code, result["left"]) == (8, [])
    (copy,) = (data / "quarantine").iterdir()
    assert digest(copy) == before


def test_what_repairs_have_kept_aside_is_told_as_that(data: Path) -> None:
    kept = folder(data) / "quarantine"
    kept.mkdir()
    (kept / "t_partition_0_segment_1.log.0").write_bytes(b"x")
    code, result = verify(data)
    (found,) = result["findings"]
    assert (code, found["text"]) == (
        0,
        "files as they were before a repair, kept here: 1; after a write that did not end"
        " (a kill, a full disk), or damage",
    )
    assert found["action"] == "they are left; nothing reads them, and they may be deleted"


@pytest.mark.parametrize("name", ["notes.txt", "notes.tmp", "notes.cleaned", "t.manifest.tmp"])
def test_a_file_of_somebody_beside_a_log_is_told_and_left(name: str, data: Path) -> None:
    path = folder(data) / name
    path.write_bytes(b"mine")
    _, result = verify(data)
    (found,) = result["findings"]
    assert (found["path"], found["text"]) == (str(path), "not a file of a log")
    verify(data, "--repair")
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("kind", LEFTOVERS)
def test_what_a_crash_leaves_is_a_note_and_no_damage(kind: str, torn: Path) -> None:
    do, text = LEFTOVERS[kind]
    do(torn)
    before = digest(torn)
    code, result = verify(torn)
    assert code == 0, result
    assert digest(torn) == before
    assert any(one["text"].startswith(text) for one in result["findings"]), result
    code, result = verify(torn, "--repair")
    assert code == 0
    assert [one for one in result["left"] if one["text"].startswith(text)] == (
        [] if kind != "a file of somebody" else [result["left"][0]]
    )


def test_a_directory_of_a_broker_that_was_killed_is_not_damaged(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data")
    lines = b"".join(b"%d\n" % number for number in range(2_000))
    made = segbroker(
        "topic",
        "create",
        "-b",
        daemon.address,
        "t",
        "-c",
        "segment.bytes=4096",
        "--partitions",
        "1",
    )
    assert made.returncode == 0, made.stderr.decode()
    sent = segbroker("produce", "-b", daemon.address, "t", "--linger", "0", stdin=lines)
    assert sent.returncode == 0, sent.stderr.decode()
    daemon.stop(signal.SIGKILL)
    before = digest(tmp_path / "data")
    code, result = verify(tmp_path / "data")
    assert (code, result["damaged"], result["offsets_lost"]) == (0, 0, 0), result
    assert digest(tmp_path / "data") == before
    # Segments that were not synced yet, and are gone: the write-ahead log has them.
    manifest = decode_manifest(file(tmp_path / "data", ".manifest").read_bytes())
    assert manifest is not None
    sealed = {row.number for row in manifest.rows if row.kind == RowKind.SEGMENT}
    for path in folder(tmp_path / "data").glob("*_segment_*.log"):
        if int(path.stem.rpartition("_")[2]) not in sealed:
            path.write_bytes(b"")
    before = digest(tmp_path / "data")
    code, result = verify(tmp_path / "data")
    assert digest(tmp_path / "data") == before
    assert values(tmp_path / "data") == list(range(2_000))


@pytest.mark.parametrize("kind", ["flipped", "missing"])
def test_what_a_sealed_segment_lost_is_damage_but_no_loss_when_the_wal_still_has_it(
    torn: Path, kind: str
) -> None:
    # No crash takes anything of a segment that is sealed; a start puts it back from the WAL.
    log = file(torn, "_segment_1.log")
    whole = log.read_bytes()
    flip(log, 200) if kind == "flipped" else log.unlink()
    code, result = verify(torn)
    assert [one["path"] for one in result["findings"] if one["level"] == "damage"] == [str(log)]
    assert (code, result["offsets_lost"]) == (8, 0)
    code, result = verify(torn, "--repair")
    repaired = {one["what"] for one in result["repairs"] if one["path"] == str(log)}
    assert (code, repaired) == (8, {"replayed"})
    assert log.read_bytes() == whole
    assert verify(torn)[0] == 0


def test_after_a_repair_the_broker_serves_everything_but_the_gap(data: Path) -> None:
    flip(file(data, "_segment_1.log"), 200)
    file(data, "_segment_2.log").unlink()
    verify(data, "--repair")
    assert values(data) == [0, 1, 2, 3, 5, 9, 10, 11, 12, 13, 14]


def test_the_sentences_name_path_offsets_and_what_a_start_does(data: Path) -> None:
    flip(file(data, "_segment_1.log"), 200)
    run = in_process("verify", str(data))
    assert run.returncode == 8
    assert run.stdout.decode().splitlines()[:2] == [
        "DAMAGE: topics/t/partition_0/t_partition_0_segment_1.log: it is damaged at byte 129"
        " (valid batches follow), offsets [4, 5) are lost",
        "        a start of the broker: the next read or scrub puts a gap in their place;"
        " quarantine/ keeps damaged bytes",
    ]


@pytest.mark.parametrize("policy", ["readonly", "refuse"])
def test_a_repair_is_the_word_of_the_operator(policy: str, tmp_path: Path) -> None:
    root = make(tmp_path / "data", on_corruption=policy)
    flip(file(root, "_segment_4.log"), 100)
    daemon = start(root)
    try:
        read = in_process("consume", "-b", daemon.address, "t", "-e", "--on-gap", "print")
        assert (read.returncode == 0) is (policy == "readonly"), read.stderr.decode()
        assert ("on.corruption=gap" in read.stderr.decode()) is (policy == "refuse")

        def is_refused(within_s: int) -> None:
            words = ("produce", "-b", daemon.address, "t", "--timeout", str(within_s))
            refused = segbroker(*words, stdin=b"more\n")
            assert refused.returncode == 7
            assert "on.corruption=gap" in refused.stderr.decode()

        within_one_of((2, 20), is_refused)
    finally:
        daemon.stop()
    assert verify(root)[0] == 8
    assert verify(root, "--repair")[0] == 8
    assert verify(root)[0] == 0
    daemon = start(root)
    try:
        accepted = segbroker("produce", "-b", daemon.address, "t", stdin=b"more\n")
        assert accepted.returncode == 0, accepted.stderr.decode()
    finally:
        daemon.stop()


def test_a_damaged_snapshot_of_the_metadata_is_explained(data: Path) -> None:
    (snapshot,) = (data / "meta").glob("snapshot-*.msgpack")
    flip(snapshot, 40)
    code, result = verify(data)
    assert code == 8
    (finding,) = result["findings"]
    assert finding["text"].startswith("the metadata is damaged at byte 24")
    assert "backup" in finding["action"]
    assert in_process("verify", "--repair", str(data)).returncode == 8
    served = segbroker("serve", "--data", str(data), "--listen", "127.0.0.1:0")
    assert served.returncode == 8, "a service manager does not try again: docs/operations.md"
    assert b"does not match its size or checksum" in served.stderr


def test_a_snapshot_of_a_later_version_is_no_damage_that_a_backup_would_help(data: Path) -> None:
    (snapshot,) = (data / "meta").glob("snapshot-*.msgpack")
    content = bytearray(snapshot.read_bytes())
    content[5] += 1
    snapshot.write_bytes(content)
    code, result = verify(data)
    assert code == 8
    (finding,) = result["findings"]
    assert f"has format {content[5]}, this version reads" in finding["text"]
    assert finding["action"] == "it does not start: a later version wrote it"
    shown = segbroker("dump", "--json", str(snapshot))
    assert shown.returncode == 8
    served = segbroker("serve", "--data", str(data), "--listen", "127.0.0.1:0")
    assert served.returncode == 8, "no restart mends it"
    assert b"Hint: a later version wrote it" in served.stderr
    assert f"has format {content[5]}" in shown.stdout.decode()


def test_a_missing_partition_is_named(data: Path) -> None:
    shutil.rmtree(folder(data))
    code, result = verify(data)
    assert code == 8
    assert result["findings"][0]["text"] == "the directory of the partition is missing"


def test_a_directory_that_a_broker_has_is_refused(data: Path) -> None:
    daemon = start(data)
    try:
        run = in_process("verify", str(data))
        assert run.returncode == 9
        assert "in use by another process" in run.stderr.decode()
        assert "stop the broker" in run.stderr.decode()
    finally:
        daemon.stop()
    assert in_process("verify", str(data)).returncode == 0


def test_a_directory_of_something_else_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    before = digest(tmp_path)
    run = in_process("verify", "--repair", str(tmp_path))
    assert run.returncode == 2
    assert "is not a data directory" in run.stderr.decode()
    assert digest(tmp_path) == before


def test_parts_of_a_backup_are_named(data: Path, tmp_path: Path) -> None:
    older = Path(shutil.copytree(data, tmp_path / "older"))
    daemon = start(data)
    sent = segbroker("produce", "-b", daemon.address, "t", stdin=b"15\n16\n")
    assert sent.returncode == 0, sent.stderr.decode()
    daemon.stop()
    assert verify(data)[0] == 0
    for part in ("topics/t/partition_0", "meta"):
        root = Path(shutil.copytree(data, tmp_path / part.replace("/", "-")))
        shutil.rmtree(root / part)
        shutil.copytree(older / part, root / part)
        code, result = verify(root)
        (found,) = [one for one in result["findings"] if one["level"] == "damage"]
        if part == "meta":
            assert code == 8
            assert "the newest snapshot is" in found["text"]
            assert found["action"] == "it does not start"
        else:
            assert (code, found["from"], found["to"]) == (8, 15, 17)
            assert "records are missing behind it" in found["text"]
            assert values(root) == list(range(15))
