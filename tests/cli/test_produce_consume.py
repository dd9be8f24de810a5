"""`segbroker produce` and `segbroker consume` against a real daemon."""

import fcntl
import io
import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import termios
from base64 import b64encode
from typing import IO

import pytest

from segbroker.client import Admin, Producer

from ..support.daemon import Daemon
from ..support.waiting import until
from .conftest import COMMAND, TIMEOUT_S, Run, environment, shown, start

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def fill(daemon: Daemon, topic: str, count: int = 10, partitions: int = 1) -> None:
    """Records "0", "1", ... in partition 0, one second apart from 2023-11-14T22:13:20Z on."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=partitions)
    with Producer(daemon.address) as producer:
        for n in range(count):
            stamp = 1_700_000_000_000 + n * 1000
            producer.send(topic, b"%d" % n, key=b"k%d" % n, partition=0, timestamp_ms=stamp)


@pytest.mark.parametrize("codec", CODECS)
def test_lines_come_back_as_they_went(run: Run, topic: str, codec: str) -> None:
    lines = b"".join(b"line %d \x00\xff\r\n" % n for n in range(3000))
    produced = run("produce", topic, "-p", "0", "-z", codec, stdin=lines)
    assert (produced.returncode, produced.stdout, produced.stderr) == (0, b"", b"")
    consumed = run("consume", topic, "-e")
    assert (consumed.returncode, consumed.stderr) == (0, b"")
    assert consumed.stdout == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acks_delivers_also_a_last_line_without_newline(
    run: Run, topic: str, acks: str
) -> None:
    assert run("produce", topic, "-p", "0", "--acks", acks, stdin=b"a\n\nb").returncode == 0
    # acks=0 is not answered: the record may still be on its way when `produce` has ended.
    assert run("consume", topic, "-p", "0", "-n", "3").stdout == b"a\n\nb\n"


def test_no_input_is_no_record(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    assert run("produce", topic).returncode == 0
    assert run("consume", topic, "-e").stdout == b""


def test_keys_headers_and_tombstones_arrive(run: Run, topic: str) -> None:
    lines = b"k1:v1:more\nno key\n:empty key\nk2:\n"
    words = ("-K", ":", "-H", "host=web1", "-H", "empty=", "-Z", "-p", "0")
    assert run("produce", topic, *words, stdin=lines).returncode == 0
    seen = run("consume", topic, "-e", "-f", r"%o [%k] %K [%s] %S {%h}\n", "-p", "0")
    assert seen.stdout.splitlines() == [
        b"0 [k1] 2 [v1:more] 7 {host=web1,empty=}",
        b"1 [] -1 [no key] 6 {host=web1,empty=}",
        b"2 [] 0 [empty key] 9 {host=web1,empty=}",
        b"3 [k2] 2 [] -1 {host=web1,empty=}",
    ]
    nulls = run("consume", topic, "-e", "-f", r"%k=%s\n", "--null", "NULL", "-p", "0")
    assert nulls.stdout == b"k1=v1:more\nNULL=no key\n=empty key\nk2=NULL\n"


def test_a_key_delimiter_may_be_any_bytes(run: Run, topic: str) -> None:
    run("produce", topic, "-K", r"\t=>\x01", stdin=b"a\t=>\x01b\n")
    assert run("consume", topic, "-e", "-f", "%k|%s").stdout == b"a|b"
    assert run("consume", topic, "-e", "-f", "").stdout == b"", "who wants the exit code only"


def test_json_lines_are_one_object_per_record(daemon: Daemon, run: Run, topic: str) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(daemon.address) as producer:
        producer.send(topic, "Zürich".encode(), key=b"k", timestamp_ms=7, headers=[("h", b"1")])
        producer.send(topic, b"\xff", timestamp_ms=8)
    lines = run("consume", topic, "-e", "-J").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "topic": topic,
            "partition": 0,
            "offset": 0,
            "timestamp_ms": 7,
            "key": "k",
            "value": "Zürich",
            "headers": [{"name": "h", "value": "1"}],
        },
        {
            "topic": topic,
            "partition": 0,
            "offset": 1,
            "timestamp_ms": 8,
            "key": None,
            "value_base64": b64encode(b"\xff").decode(),
            "headers": [],
        },
    ]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("start", b"0123456789"),
        ("7", b"789"),
        ("10", b""),
        ("-2", b"89"),
        ("-100", b"0123456789"),
        ("end", b""),
        ("@1700000006000", b"6789"),
        ("@1700000005001", b"6789"),
        ("@2023-11-14T22:13:28Z", b"89"),
        ("@2033-11-14T22:13:28Z", b""),
        ("@0", b"0123456789"),
        ("@1969-12-31T23:59:59.999Z", b"0123456789"),
        ("@1900-01-01T00:00:00Z", b"0123456789"),
    ],
)
def test_reading_starts_where_asked(
    daemon: Daemon, run: Run, topic: str, where: str, expected: bytes
) -> None:
    fill(daemon, topic)
    seen = run("consume", topic, "-e", "-o", where, "-f", "%s")
    assert (seen.returncode, seen.stdout) == (0, expected)


def test_reading_ends_after_the_count_in_the_middle_of_a_batch(
    daemon: Daemon, run: Run, topic: str
) -> None:
    fill(daemon, topic)
    assert run("consume", topic, "-n", "3").stdout == b"0\n1\n2\n"
    assert run("consume", topic, "-n", "0").stdout == b""
    assert run("consume", topic, "-n", "11", "-e", "-f", "%s").stdout == b"0123456789"


def test_one_partition_or_some_can_be_read(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "3")
    for n in range(3):
        run("produce", topic, "-p", str(n), stdin=b"in %d\n" % n)
    assert run("consume", topic, "-e", "-p", "1").stdout == b"in 1\n"
    some = run("consume", topic, "-e", "-p", "0", "-p", "2").stdout
    assert sorted(some.splitlines()) == [b"in 0", b"in 2"]
    everything = run("consume", topic, "-e", "-f", r"%p%s\n").stdout
    assert sorted(everything.splitlines()) == [b"0in 0", b"1in 1", b"2in 2"]


def test_a_topic_that_is_not_there_is_said_with_what_to_do(run: Run) -> None:
    seen = run("consume", "no-such-topic", "-e")
    said = seen.stderr.decode()
    assert seen.returncode == 5
    assert "no-such-topic" in said.splitlines()[0]
    assert "Hint: create it: segbroker topic create no-such-topic" in said


def test_a_partition_that_is_not_there_is_said(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "2")
    for words in (["produce"], ["consume", "-e"]):
        seen = run(*words, topic, "-p", "2", stdin=b"x\n")
        assert seen.returncode == 5
        assert "2" in seen.stderr.decode().splitlines()[0]
        assert "Traceback" not in seen.stderr.decode()


def test_an_offset_out_of_range_is_said_with_its_bounds(
    daemon: Daemon, run: Run, topic: str
) -> None:
    fill(daemon, topic)
    seen = run("consume", topic, "-o", "99")
    assert seen.returncode == 5
    assert "99" in seen.stderr.decode()
    assert "10" in seen.stderr.decode()


def test_a_bounded_reading_that_begins_behind_the_end_is_an_error(
    daemon: Daemon, run: Run, topic: str
) -> None:
    fill(daemon, topic)
    seen = run("consume", topic, "-o", "999", "-e")
    assert seen.returncode == 5
    assert "offset 999 is outside [0, 10]" in seen.stderr.decode()


def test_lines_that_were_not_delivered_are_named_and_the_others_arrive(
    run: Run, topic: str
) -> None:
    run("topic", "create", topic, "--partitions", "1", "-c", "segment.bytes=16384")
    lines = b"first\n" + b"x" * 20_000 + b"\nlast\n"
    produced = run("produce", topic, "--linger", "0", stdin=lines)
    said = produced.stderr.decode()
    assert produced.returncode == 7
    assert "1 of 3 records were not delivered" in said
    assert re.search(r"^ +line 2: ", said, re.MULTILINE)
    assert run("consume", topic, "-e").stdout == b"first\nlast\n"


def test_each_of_many_lines_that_are_too_large_costs_itself_alone(run: Run, topic: str) -> None:
    # More than half of what the producer holds: it does not wait for somebody to ask.
    run("topic", "create", topic, "--partitions", "1")
    lines = b"first\n" + (b"x" * 2_000_000 + b"\n") * 24 + b"last\n"
    produced = run("produce", topic, stdin=lines)
    said = produced.stderr.decode().splitlines()
    assert (produced.returncode, said[0]) == (7, "24 of 26 records were not delivered:")
    assert re.match(r"  lines 2-25: .* batch of \d+ bytes, max.message.bytes", said[1])
    assert len(said) == 2
    assert run("consume", topic, "-e").stdout == b"first\nlast\n"


def test_behind_many_failures_the_one_that_ends_the_reading_is_told(run: Run, topic: str) -> None:
    limits = ("segment.bytes=16384", "retention.records=30", "retention.full.policy=reject")
    run("topic", "create", topic, "--partitions", "1", *(w for x in limits for w in ("-c", x)))
    lines = (b"x" * 20_000 + b"\nshort\n") * 25 + b"one too many\n" * 60
    produced = run("produce", topic, stdin=lines)
    said = produced.stderr.decode().splitlines()
    assert produced.returncode == 7
    # How the lines are divided into batches is no matter.
    assert re.fullmatch(r"  and \d+ more in lines 41-\d+", said[21])
    assert re.match(r"  lines \d+-110: .* would pass retention.records=30", said[22])
    assert said[23] == "reading stopped there; what followed was not sent"


def test_lines_larger_than_the_clients_buffer_arrive_where_the_topic_takes_them(
    run: Run, topic: str
) -> None:
    run("topic", "create", topic, "--partitions", "1", "-c", "max.message.bytes=104857600")
    sizes = [5, 17 << 20, 33 << 20, 6]
    lines = b"".join(b"x" * size + b"\n" for size in sizes)
    sent = run("produce", topic, stdin=lines)
    assert (sent.returncode, sent.stderr) == (0, b"")
    read = run("consume", topic, "-e", "-f", "%S\\n")
    assert [int(size) for size in read.stdout.split()] == sizes


def test_a_typed_line_is_sent_before_the_next_is_typed(daemon: Daemon, topic: str) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    writer = start(daemon, "produce", topic)
    reader = start(daemon, "consume", topic)
    assert writer.stdin is not None
    assert reader.stdout is not None
    for line in (b"one\n", b"two\n"):
        writer.stdin.write(line)
        writer.stdin.flush()
        assert reader.stdout.readline() == line
    writer.communicate(timeout=TIMEOUT_S)
    assert writer.returncode == 0
    reader.send_signal(signal.SIGTERM)
    _, said = reader.communicate(timeout=TIMEOUT_S)
    assert (reader.returncode, said) == (143, b"")


def test_ctrl_c_ends_a_waiting_consumer_quietly(daemon: Daemon, topic: str) -> None:
    fill(daemon, topic, 1)
    reader = start(daemon, "consume", topic)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"0\n"
    reader.send_signal(signal.SIGINT)
    rest, said = reader.communicate(timeout=TIMEOUT_S)
    assert (reader.returncode, rest, said) == (130, b"", b"")


def test_ctrl_c_within_the_writing_of_a_batch_has_nothing_written_twice(
    daemon: Daemon, run: Run, topic: str
) -> None:
    lines = b"".join(b"%039d\n" % number for number in range(200))
    run("topic", "create", topic, "--partitions", "1")
    run("produce", topic, stdin=lines)
    reading, writing = os.pipe()
    # Half of the batch: its first write is not at its end when the signal comes.
    room = fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    assert room < len(lines) < io.DEFAULT_BUFFER_SIZE
    reader = start(daemon, "consume", topic, stdout=writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        until(lambda: _waiting_in(pipe) == room)
        reader.send_signal(signal.SIGINT)
        assert pipe.read() == lines
    _, said = reader.communicate(timeout=TIMEOUT_S)
    assert (reader.returncode, said) == (130, b"")


def _waiting_in(pipe: IO[bytes]) -> int:
    """How many bytes can be read now."""
    count = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(count, sys.byteorder)


def test_ctrl_c_ends_a_producer_after_what_it_has_read(
    daemon: Daemon, run: Run, topic: str
) -> None:
    fill(daemon, topic, 0)
    writer = start(daemon, "produce", topic, "--linger", "60000")
    reader = start(daemon, "consume", topic, "-n", "1")
    assert writer.stdin is not None
    assert writer.stderr is not None
    writer.stdin.write(b"read before Ctrl-C\n")
    writer.stdin.flush()
    # The line lingers for a minute: only Ctrl-C can send it.
    wait_until_read(writer)
    writer.send_signal(signal.SIGINT)
    assert reader.communicate(timeout=TIMEOUT_S)[0] == b"read before Ctrl-C\n"
    _, said = writer.communicate(timeout=TIMEOUT_S)
    assert (writer.returncode, said) == (130, b"")


def test_ctrl_c_within_a_line_sends_the_lines_before_it_and_says_so(
    daemon: Daemon, run: Run, topic: str
) -> None:
    fill(daemon, topic, 0)
    writer = start(daemon, "produce", topic, "--linger", "60000")
    assert writer.stdin is not None
    writer.stdin.write(b'{"whole": 1}\n{"who')
    writer.stdin.flush()
    wait_until_read(writer)
    writer.send_signal(signal.SIGINT)
    _, said = writer.communicate(timeout=TIMEOUT_S)
    assert writer.returncode == 130
    assert said == b"the first 5 bytes of a line were read and not sent\n"
    assert run("consume", topic, "-e").stdout == b'{"whole": 1}\n'


def test_ctrl_c_before_a_broker_has_answered_ends_a_producer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        writer = subprocess.Popen(
            [*COMMAND, "produce", "t", "-b", address], stdin=subprocess.PIPE, env=environment()
        )
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(4096)  # what it asks first, and never has an answer to
            writer.send_signal(signal.SIGINT)
            writer.communicate(timeout=TIMEOUT_S)
    assert writer.returncode == 130


def test_a_second_signal_gives_up_and_names_what_nobody_knows_of(
    daemon: Daemon, topic: str
) -> None:
    fill(daemon, topic, 0)
    writer = start(daemon, "produce", topic, "--linger", "60000")
    assert writer.stdin is not None
    for line in (b"sent, and lingers\n", b"when this is read\n"):
        writer.stdin.write(line)
        writer.stdin.flush()
        wait_until_read(writer)
    # Both are there when it goes on.  The interpreter takes them by their number, unless the client
    # puts the first one off just then.
    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        writer.send_signal(number)
    _, said = writer.communicate(timeout=TIMEOUT_S)
    assert writer.returncode in (130, 143)
    assert re.search(rb"\n  lines? 1(-2)?: given up before the broker had answered", said)


LANDS_ELSEWHERE = """
import os, signal, threading
from segbroker.cli.produce import read_until
from segbroker.cli.stop_signal import StopSignal

def land(main):
    asleep = 0
    while asleep < 1_000:  # each look lets it run, if it can: it waits for input
        state = open(f"/proc/self/task/{main}/stat").read().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

with StopSignal() as stop:
    threading.Thread(target=land, args=(threading.get_native_id(),)).start()
    assert read_until(stop, 100) is None
    print(stop.exit_code)
"""


def test_a_signal_that_does_not_interrupt_the_wait_for_input_ends_it_all_the_same() -> None:
    # Of another thread, or come right before the wait: the system call is not interrupted.
    program = subprocess.Popen(
        [sys.executable, "-c", LANDS_ELSEWHERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert program.wait(TIMEOUT_S) == 0  # with an input that is open and empty
    finally:
        program.kill()
        said, _ = program.communicate(timeout=TIMEOUT_S)
    assert said == b"130\n"


def wait_until_read(process: "subprocess.Popen[bytes]") -> None:
    """Until nothing is left in the pipe to a process."""
    pipe = process.stdin
    assert pipe is not None
    until(lambda: _waiting_in(pipe) == 0)


def test_a_reader_that_goes_away_ends_the_consumer_with_0_even_when_nothing_comes(
    daemon: Daemon, topic: str
) -> None:
    fill(daemon, topic, 1)
    reader = start(daemon, "consume", topic)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"0\n"
    reader.stdout.close()
    assert reader.wait(TIMEOUT_S) == 0
    assert reader.stderr is not None
    assert reader.stderr.read() == b""
    reader.stderr.close()
    assert reader.stdin is not None
    reader.stdin.close()


def test_head_ends_a_long_reading_quietly(daemon: Daemon, run: Run, topic: str) -> None:
    run("produce", topic, "-p", "0", stdin=b"a line\n" * 200_000)
    command = shlex.join([*COMMAND, "consume", topic, "-b", daemon.address])
    pipeline = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -n 2"],
        capture_output=True,
        timeout=TIMEOUT_S,
        env=environment(),
    )
    assert (pipeline.returncode, pipeline.stdout, pipeline.stderr) == (0, b"a line\n" * 2, b"")


def test_a_counter_is_drawn_on_a_terminal_only(daemon: Daemon, topic: str) -> None:
    leader, follower = pty.openpty()
    try:
        run = subprocess.run(
            [*COMMAND, "produce", topic, "-b", daemon.address],
            input=b"a\nb\n",
            stdout=subprocess.PIPE,
            stderr=follower,
            timeout=TIMEOUT_S,
            env=environment(TERM="xterm"),
        )
        assert (run.returncode, run.stdout) == (0, b"")
        assert b"2 records" in shown(leader, follower)
    finally:
        os.close(leader)


@pytest.mark.parametrize("protocol", ["classic", "CONSUMER"])
def test_a_group_goes_on_behind_what_was_printed(run: Run, topic: str, protocol: str) -> None:
    run("produce", topic, stdin=b"a\nb\nc\nd\ne\n")
    group = ("consume", "-X", f"group.protocol={protocol}", "--group", f"{topic}-g")
    assert run(*group, "-n", "2", topic).stdout == b"a\nb\n"
    assert run(*group, "--static", "one", "-e", topic).stdout == b"c\nd\ne\n"
    assert run(*group, "--static", "one", "-e", topic).stdout == b""
    described = run("group", "describe", f"{topic}-g", "--json").stdout
    assert json.loads(described)["type"] == protocol.lower()
    # A context may say it for all commands: the others have no use for it.
    assert run("consume", "-X", f"group.protocol={protocol}", "-n", "1", topic).stdout == b"a\n"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--static", "one", "t"), "--static is for a member of a group"),
        (("-p", "1", "--group", "g", "t"), "-p is for one topic, without --group"),
        (("-p", "1", "a", "b"), "-p is for one topic"),
        (("--group", "g", "-X", "group.protocol=new", "t"), "group.protocol=new is not classic"),
        (("--group", "g", "-X", "group.remote.assignor=range", "t"), "for group.protocol=consumer"),
    ],
)
def test_flags_of_a_group_that_contradict_each_other_are_said(
    run: Run, flags: tuple[str, ...], says: str
) -> None:
    refused = run("consume", *flags)
    assert refused.returncode == 2
    assert says in refused.stderr.decode()
