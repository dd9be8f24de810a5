"""What holds for every subcommand: help, versions, completion, usage errors, start-up."""

import errno
import os
import pty
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from segbroker.broker.address import split_address
from segbroker.cli.exit_codes import ExitCode
from segbroker.cli.failures import explain
from segbroker.cli.main import Segbroker
from segbroker.client import Producer
from segbroker.client.errors import BrokerUnreachable, SegbrokerError, TimedOut
from segbroker.client.settings import joined, parse_bootstrap

from ..support.daemon import Daemon, running
from .conftest import COMMAND, TIMEOUT_S, Run, environment, segbroker, shown

COMMANDS = (
    "serve",
    "produce",
    "consume",
    "topic",
    "topic create",
    "topic list",
    "topic describe",
    "topic alter",
    "topic delete",
    "spark",
    "spark export",
    "spark import",
    "spark replay",
    "spark sql",
    "acl add",
    "acl remove",
    "dump",
    "completion",
    "version",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    run = segbroker(*command.split(), "--help")
    text = run.stdout.decode()
    assert run.returncode == 0
    assert run.stderr == b""
    assert text.startswith(f"Usage: segbroker {command} ")
    assert re.search(rf"^ +.*segbroker {command}", text.partition("\n")[2], re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 100


def test_the_overview_lists_every_command_and_every_exit_code() -> None:
    text = segbroker("--help").stdout.decode()
    for name in Segbroker.leaves:
        assert f"\n  {name} " in text
    assert len(re.findall(r"^ +\d+  \S", text, re.MULTILINE)) == len(ExitCode)


@pytest.mark.parametrize(
    ("redirection", "says"),
    [("<&-", b"Error: standard input is closed"), (">&-", b"Error: standard output is closed")],
)
def test_a_closed_stream_is_an_error_in_a_sentence(redirection: str, says: bytes) -> None:
    shell = f'"$0" -m segbroker.cli version {redirection}'
    run = subprocess.run(
        ["sh", "-c", shell, sys.executable], env=environment(), capture_output=True, check=False
    )
    assert run.returncode == ExitCode.SYSTEM
    assert run.stderr.startswith(says)


@pytest.mark.parametrize("words", ["--help", "topic --help", "topic list --help"])
def test_a_help_that_nobody_reads_is_no_failure(words: str) -> None:
    over, end = os.pipe()
    os.close(over)  # `| true`
    command = [*COMMAND, *words.split()]
    with open(end, "wb") as nobody:
        run = subprocess.run(
            command, env=environment(), stdout=nobody, stderr=subprocess.PIPE, check=False
        )
    assert (run.returncode, run.stderr) == (ExitCode.OK, b"")


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "topic --help",
        "topic list --help",
        "version",
        "completion bash",
        "serve --show-config",
        "serve --listen 127.0.0.1:0 --log-level error",
        "context list --json",
    ],
)
def test_output_that_cannot_be_written_is_an_error_in_a_sentence(
    words: str, tmp_path: Path
) -> None:
    _ends_on_full_output(words.split(), tmp_path)


def test_findings_that_cannot_be_written_are_not_a_full_disk_of_the_data(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon, Producer(daemon.address) as producer:
        producer.send("t", b"x", partition=0).result()
    log = "data/topics/t/partition_0/t_partition_0_segment_0.log"
    for words in (["verify", "data"], ["verify", "--json", "data"], ["dump", log]):
        _ends_on_full_output(words, tmp_path)


def _ends_on_full_output(words: list[str], folder: Path, done: str = "") -> None:
    """done: what is said before of what was done all the same."""
    command = [*COMMAND, *words]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            command,
            env=environment(),
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.returncode == ExitCode.SYSTEM
    assert ended.stderr == f"{done}Error: standard output: No space left on device\n".encode()


def test_records_that_cannot_be_written_are_not_a_full_disk_of_the_broker(
    daemon: Daemon, run: Run, topic: str, tmp_path: Path
) -> None:
    run("produce", topic, stdin=b"a line\n")
    for words in (["consume", topic, "-e"], ["topic", "list"], ["topic", "describe", topic]):
        _ends_on_full_output([*words, "-b", daemon.address], tmp_path)


def test_what_was_done_is_said_though_the_table_behind_it_cannot_be_written(
    daemon: Daemon, run: Run, topic: str, tmp_path: Path
) -> None:
    run("produce", topic, stdin=b"a line\n")
    for words, done in (
        (
            ["group", "seek", topic, topic, "end"],
            f"moved group {topic} to these offsets of {topic}",
        ),
        (["topic", "trim", topic, "--before", "end", "--yes"], f"deleted 1 record of {topic}"),
    ):
        _ends_on_full_output([*words, "-b", daemon.address], tmp_path, f"{done}\n")


def test_the_version_is_one_line_for_scripts() -> None:
    for words in (["version"], ["--version"]):
        run = segbroker(*words)
        assert run.returncode == 0
        assert re.fullmatch(rb"segbroker \d+\.\d+\.\d+\n", run.stdout)


def test_the_version_and_the_help_import_neither_client_nor_broker() -> None:
    program = (
        "import sys, segbroker.cli.main as m\n"
        "sys.argv[1:] = sys.argv[1].split()\n"
        "try: m.main()\n"
        "except SystemExit: pass\n"
        "print([n for n in ('trio', 'anyio', 'rich', 'segbroker.client', 'segbroker.broker')"
        " if n in sys.modules], file=sys.stderr)\n"
    )
    for words in ("version", "--help", "produce --help", "consume --help", "topic --help"):
        run = subprocess.run(
            [sys.executable, "-c", program, words], capture_output=True, env=environment()
        )
        assert run.stderr.splitlines()[-1] == b"[]", words


def test_the_daemon_imports_no_rich_which_others_still_can() -> None:
    program = (
        "import sys, segbroker.cli.serve as serve\n"
        "serve.import_structlog()\n"
        "import segbroker.broker.server\n"
        "print('rich' in sys.modules)\n"
        "import rich.progress\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment(), check=False
    )
    assert (run.stdout, run.stderr) == (b"False\n", b"")


DENIED = ("acl", "add", "--principal", "User:a", "--operation", "all", "--topic", "t", "--deny")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cosnume"], "No such command 'cosnume'. Did you mean 'consume'?"),
        (["topics", "list"], "Did you mean 'topic'?"),
        (["topic", "rm", "t"], "No such command 'rm'. Did you mean 'delete'?"),
        (["user", "rm", "a"], "Did you mean 'remove'?"),
        (["group", "reset", "g"], "Did you mean 'seek'?"),
        (["status"], "Did you mean 'broker status'?"),
        (["help"], "Did you mean '--help'?"),
        (["consume", "--topic", "t"], "'--topic': the topic is named without an option"),
        (["consume", "t", "--from-beginning"], "'--from-beginning': -o start"),
        (["topic", "list", "--bootstrap-server", "h:1"], "'--bootstrap-server': -b HOST:PORT"),
        (["context", "add", "", "-b", "h:1"], "the name must not be empty"),
        (["-b", "h:1", "topic", "list"], "-b goes after the command"),
        (["topic", "delete", "t", "--yes", "-b", ""], "'' names 0 brokers"),
        (["produce"], "Missing argument"),
        (["produce", "t", "-z", "rar"], "'rar' is not one of"),
        (["produce", "t", "-H", "novalue"], "'novalue' is not NAME=VALUE"),
        (["produce", "t", "-K", "\\q"], "\\q is not an escape"),
        (["produce", "t", "-K", ""], "an empty one splits nothing"),
        (["consume", "t", "-o", "yesterday"], "'yesterday' is not start, end, OFFSET, -N or @TIME"),
        (["consume", "t", "-f", "%q"], "%q is unknown"),
        (["consume", "t", "-f", "%s", "-J"], "-f and -J"),
        (["consume", "t", "-b", "host:port"], "'port' is not in 1 .. 65535"),
        (["topic", "create", "t", "-c", "nothing"], "'nothing' is not KEY=VALUE"),
        (["topic", "--list"], "'--list': list is a command: segbroker topic list"),
        (["produce", "t", "--timeout", "inf"], "'inf' is not a time"),
        (["group", "describe", "g", "--interval", "nan"], "'nan' is not a time"),
        (["-L"], "'-L': segbroker topic list --long"),
        (["consume", "-C", "-t", "t"], "'-C': segbroker consume TOPIC"),
        (["start"], "Did you mean 'serve'?"),
        (["consumer-groups"], "Did you mean 'group'?"),
        (["topic", "alter", "t", "--delete-config", "a"], "'--delete-config': --unset KEY"),
        (["topic", "alter", "t", "--add-config", "a=b"], "'--add-config': -c KEY=VALUE"),
        (["produce", "t", "--file", "f"], "'--file': segbroker produce TOPIC < FILE"),
        (["produce", "t", "--compression-codec", "lz4"], "'--compression-codec': -z CODEC"),
        (["consume", "t", "-c", "5"], "'-c': -n N"),
        (["consume", "t", "--output", "json"], "'--output': -J prints JSON"),
        (["topic", "create", "t", "--replicas", "1"], "'--replicas': there is one broker"),
        (["topic", "delete", "t", "--force"], "'--force': --yes does not ask"),
        (["topic", "purge", "t"], "Did you mean 'trim'?"),
        (["lag"], "Did you mean 'group list --long'?"),
        (["group", "lag", "g"], "Did you mean 'describe'?"),
        (["quota", "add"], "Did you mean 'set'?"),
        (["acl", "grant"], "Did you mean 'add'?"),
        (["broker", "health"], "Did you mean 'status'?"),
        (["consume", "t\udcff", "-e"], "'t\\udcff' is not text in UTF-8"),
        (["consume", "t", "-g", "\udcff"], "'\\udcff' is not text in UTF-8"),
        (["produce", "t", "-H", "\udcff=1"], "'\\udcff' is not text in UTF-8"),
        (["topic", "alter", "t", "-c", "a=\udcff"], "'a=\\udcff' is not text in UTF-8"),
        (["spark", "import", "in", "--topic", "t", "--max-offsets", "2"], "No such option"),
        (["spark", "sql", "SELECT 1", "--master", "x"], "'x' is not local[N], spark://"),
        ([*DENIED, "--host", "10.0.0.0/8"], "'10.0.0.0/8' is no address"),
        ([*DENIED, "--host", "::1", "--host", "app.lan"], "'app.lan' is no address"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong_and_ends_with_2(
    words: list[str], said: str
) -> None:
    run = segbroker(*words)
    assert run.returncode == 2
    assert run.stdout == b""
    assert said in run.stderr.decode()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_of_each_shell_is_printed(shell: str) -> None:
    run = segbroker("completion", shell)
    assert run.returncode == 0
    assert f"_SEGBROKER_COMPLETE={shell}_complete" in run.stdout.decode()


def test_the_shell_is_offered_commands_and_options() -> None:
    def offered(line: str) -> list[str]:
        words = {"_SEGBROKER_COMPLETE": "bash_complete", "COMP_WORDS": line}
        words["COMP_CWORD"] = str(len(line.split(" ")) - 1)
        run = segbroker(env=words)
        return [row.partition(",")[2] for row in run.stdout.decode().splitlines()]

    assert offered("segbroker pro") == ["produce"]
    assert "--bootstrap" in offered("segbroker consume --")
    assert offered("segbroker topic d") == ["describe", "delete"]


@pytest.mark.parametrize(
    "words", [["topic", "list"], ["consume", "t", "-e"], ["produce", "t"]], ids=lambda w: w[0]
)
def test_no_broker_is_said_in_one_sentence_with_what_to_do(words: list[str]) -> None:
    with socket.socket() as unused:  # bound, not listening: refuses connections
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        run = segbroker(*words, "-b", address, stdin=b"a line\n")
    said = run.stderr.decode()
    assert run.returncode == 4
    assert run.stdout == b""
    assert address in said.splitlines()[0]
    assert said.splitlines()[0].startswith("Error: ")
    assert f"Hint: start a broker: segbroker serve --listen {address}" in said
    assert "Traceback" not in said


def test_where_no_port_of_this_machine_is_free_nobody_is_told_to_start_a_broker() -> None:
    # What the client says of an OSError of connect.
    gone = BrokerUnreachable(
        "no broker of 127.0.0.1:9092 could be reached:"
        f" 127.0.0.1:9092: {os.strerror(errno.EADDRNOTAVAIL)}"
    )
    failure = explain(gone, {"bootstrap": "127.0.0.1:9092"})
    assert failure is not None
    assert failure.code == ExitCode.UNREACHABLE
    assert "no local port is free" in failure.hint


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnreachable("broker.example.org: Name or service not known"),
        TimedOut("127.0.0.1:1 could not be reached in time", may_be_done=False),
        BrokerUnreachable("my-kafka:9092: Connection refused"),
        BrokerUnreachable("kafka:90920: Connection refused"),
    ],
)
def test_an_address_that_only_the_broker_has_named_is_said_to_be_that(
    error: SegbrokerError,
) -> None:
    failure = explain(error, {"bootstrap": "kafka"})
    assert failure is not None
    told = "a broker of kafka:9092 named that address: see its advertised_listeners"
    assert (failure.code, failure.hint) == (ExitCode.UNREACHABLE, told)


def test_the_address_to_start_a_broker_at_is_one_that_it_takes() -> None:
    """Of IPv6 addresses without a port, too."""
    for bootstrap in ("127.0.0.1", "localhost:9092", "[::1]", "::1", "[::1]:9092,other:1"):
        gone = BrokerUnreachable(f"no broker of {joined(parse_bootstrap(bootstrap))} is there")
        failure = explain(gone, {"bootstrap": bootstrap})
        assert failure is not None
        found = re.search(r"--listen (\S+)", failure.hint)
        assert found is not None, failure.hint
        assert split_address(found[1])[1] == 9092


@pytest.mark.parametrize(
    ("given", "coloured"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_an_error_on_a_terminal_is_in_colour_unless_the_terminal_or_the_user_has_none(
    given: dict[str, str], coloured: bool
) -> None:
    env = environment(TERM="xterm")
    env.pop("NO_COLOR", None)
    ours, theirs = pty.openpty()
    try:
        words = ("context", "use", "no-such-context")
        done = subprocess.run(
            [*COMMAND, *words], stderr=theirs, env=env | given, timeout=TIMEOUT_S, check=False
        )
        said = shown(ours, theirs)
    finally:
        os.close(ours)
    assert done.returncode != 0
    assert b"Error: " in said
    assert (b"\x1b[" in said) == coloured


def test_an_address_of_ipv6_is_said_as_it_is_typed() -> None:
    run = segbroker("topic", "list", "-b", "[::1]:1")
    said = run.stderr.decode()
    assert run.returncode == ExitCode.UNREACHABLE
    assert said.startswith("Error: no broker of [::1]:1 could be reached: [::1]:1: ")
