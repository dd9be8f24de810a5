"""`segbroker serve` as a process: ready line, settings, signals, refusals."""

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from segbroker.broker.configuration.config import BrokerConfig, keys
from segbroker.cli.exit_codes import ExitCode
from segbroker.client import Admin, Producer

from ..support.certificates import Authority
from ..support.daemon import launch, log_of, running, start
from ..support.waiting import until
from .conftest import COMMAND, TIMEOUT_S, environment, segbroker


def test_the_ready_line_is_all_there_is_on_standard_output(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.fullmatch(rb"segbroker listening on (127\.0\.0\.1:[1-9][0-9]*)\n", line)
    assert match is not None
    with Admin(match[1].decode()) as admin:
        assert admin.list_topics() == []
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, rest) == (0, b"")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_what_was_acknowledged_is_there_at_the_next_start(
    tmp_path: Path, how: signal.Signals
) -> None:
    daemon = start(tmp_path / "data")
    with Producer(daemon.address) as producer:
        producer.send_many("kept", [b"%d" % n for n in range(1000)], partition=0)
    assert daemon.stop(how) == 0
    daemon = start(tmp_path / "data")
    try:
        seen = segbroker("consume", "kept", "-e", "-b", daemon.address)
        assert seen.stdout == b"".join(b"%d\n" % n for n in range(1000))
    finally:
        daemon.stop()


def test_a_data_directory_in_use_is_said_in_one_sentence(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data")
    try:
        second = segbroker("serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    finally:
        daemon.stop()
    said = second.stderr.decode().splitlines()
    assert (second.returncode, second.stdout) == (9, b"")
    assert any(line.startswith("Error: ") and str(tmp_path / "data") in line for line in said)
    assert "Hint: another broker runs on it: stop that one, or choose another --data" in said


def test_a_port_of_the_metrics_page_in_use_is_said_before_anything_is_opened(
    tmp_path: Path,
) -> None:
    daemon = start(tmp_path / "data")
    flags = ("--listen", "127.0.0.1:0", "--metrics-listen", daemon.address)
    try:
        second = segbroker("serve", "--data", str(tmp_path / "two"), *flags)
    finally:
        daemon.stop()
    assert (second.returncode, second.stdout) == (9, b"")
    assert second.stderr.decode().splitlines() == [
        f"Error: the address is in use: {daemon.address}",
        "Hint: another broker may run there; --metrics-listen 127.0.0.1:0 takes a free port",
    ]
    assert not (tmp_path / "two").exists()


def test_a_port_in_use_is_said_before_the_data_directory_is_made(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data")
    try:
        second = segbroker("serve", "--data", str(tmp_path / "two"), "--listen", daemon.address)
    finally:
        daemon.stop()
    assert second.returncode == 9
    assert second.stderr.decode().splitlines() == [
        f"Error: the address is in use: {daemon.address}",
        "Hint: another broker may run there; --listen 127.0.0.1:0 takes a free port",
    ]
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize(
    ("listen", "page"),
    [
        ("127.0.0.1:9092", "127.0.0.1:9092"),
        ("0.0.0.0:9092", "127.0.0.1:9092"),
        ("127.0.0.1:9092", "0.0.0.0:9092"),
        ("localhost:9092", "127.0.0.1:9092"),
        ("[::]:9092", "127.0.0.1:9092"),
        ("[0:0::1]:9092", "[::1]:9092"),
    ],
)
def test_a_page_of_metrics_on_the_brokers_own_port_is_a_wrong_setting(
    listen: str, page: str, tmp_path: Path
) -> None:
    flags = ("--listen", listen, "--metrics-listen", page, "--allow-anonymous-network")
    ended = segbroker("serve", "--data", str(tmp_path / "data"), *flags)
    assert ended.returncode == ExitCode.CONFIG
    assert "is where the broker itself listens (PLAINTEXT)" in ended.stderr.decode()
    assert "another broker" not in ended.stderr.decode()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.0.0.0:9092", "127.0.0.1:9092"),
        ("127.0.0.1:9092", "localhost:9092"),
        ("[::1]:9092", "[::]:9092"),
        ("[::]:9092", "0.0.0.0:9092"),
    ],
)
def test_two_listeners_that_need_the_same_port_are_a_wrong_setting(
    one: str, other: str, tmp_path: Path
) -> None:
    listeners = f"SASL_PLAINTEXT://{one},PLAINTEXT://{other}"
    flags = ("--listeners", listeners, "--allow-anonymous-network")
    ended = segbroker("serve", "--data", str(tmp_path / "data"), *flags)
    assert ended.returncode == ExitCode.CONFIG
    told = f"listeners: 'SASL_PLAINTEXT' on {one} and 'PLAINTEXT' on {other} need different ports"
    assert told in ended.stderr.decode()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("127.0.0.1:9092", "127.0.0.2:9092"),
        ("0.0.0.0:9092", "[::1]:9092"),
        ("0.0.0.0:9092", "127.0.0.1:9093"),
        ("[fe80::1%eth0]:9092", "[fe80::1%eth1]:9092"),
    ],
)
def test_addresses_that_do_not_meet_are_allowed(one: str, other: str) -> None:
    listeners = f"SASL_PLAINTEXT://{one},PLAINTEXT://{other}"
    BrokerConfig(listeners=listeners, allow_anonymous_network=True)
    BrokerConfig(listen=one, metrics_listen=other, allow_anonymous_network=True)


def test_an_address_of_another_machine_is_said_with_the_setting_that_it_may_belong_to(
    tmp_path: Path,
) -> None:
    elsewhere = "192.0.2.1:9092"  # RFC 5737: of no machine
    flags = ("--listeners", f"SASL_PLAINTEXT://{elsewhere}")
    ended = segbroker("serve", "--data", str(tmp_path / "data"), *flags)
    assert ended.returncode == ExitCode.SYSTEM
    said = ended.stderr.decode()
    assert f"cannot listen on {elsewhere}: " in said
    assert "this machine has no such address" in said
    assert "one that only clients see goes into advertised_listeners" in said


def test_of_several_listeners_the_one_that_cannot_be_is_named(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data")
    mine = f"SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://{daemon.address}"
    try:
        second = segbroker("serve", "--data", str(tmp_path / "two"), "--listeners", mine)
    finally:
        daemon.stop()
    assert second.returncode == 9
    said = second.stderr.decode().splitlines()
    assert f"Error: the address is in use: {daemon.address}" in said
    # `--listen` is ignored beside `listeners`.
    assert "Hint: another broker may run there; port 0 in listeners takes a free port" in said


def test_a_directory_that_has_something_else_is_taken_and_what_it_has_is_told(
    tmp_path: Path,
) -> None:
    (tmp_path / "kafka" / "orders-0").mkdir(parents=True)
    (tmp_path / "kafka" / "meta.properties").write_text("version=1\n")
    (tmp_path / "kafka" / "reserve").write_text("a file of ours has this name\n")
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    told = {}
    for name in ("kafka", "kafka", "volume"):  # after its first start it is one like any other
        with running(tmp_path / name) as daemon:
            told[name] = [event["others"] for event in daemon.events("data_directory_has_others")]
            started = daemon.events("broker_started")[-1]
            status = segbroker("broker", "status", "--json", "-b", daemon.address)
            assert started["cluster_id"] == json.loads(status.stdout)["cluster_id"]
    assert told == {"kafka": [["meta.properties", "orders-0"]], "volume": []}
    assert (tmp_path / "kafka" / "reserve").read_text() == "a file of ours has this name\n"


OTHER_KEY = (
    "the private key is not that of the first certificate"
    " (the broker's own has to come before its chain)"
)


def with_tls(tmp_path: Path, *flags: str) -> tuple[int, list[str]]:
    """The exit code, and what is said behind the log; nothing was made of data."""
    tls = ("--listeners", "SSL://127.0.0.1:0", "--ssl-client-auth", "required")
    words = ("serve", "--data", str(tmp_path / "data"), *tls, *flags)
    seen = segbroker(*words, cwd=tmp_path)
    assert not (tmp_path / "data").exists()
    return seen.returncode, seen.stderr.decode().splitlines()


def test_a_certificate_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server()
    unusable = "of listener SSL cannot be used"
    missing = "(missing.pem): No such file or directory"
    words = ("--ssl-certificate", "server.pem", "--ssl-ca", "ca.pem")
    for flag in ("--ssl-certificate", "--ssl-key", "--ssl-ca"):
        setting = "ssl_ca" if flag == "--ssl-ca" else "ssl_certificate"
        seen = with_tls(tmp_path, *words, flag, "missing.pem")
        assert seen == (ExitCode.CONFIG, [f"Error: {setting} {unusable} {missing}"])


def test_a_certificate_that_is_none_is_said_in_words(tmp_path: Path) -> None:
    Authority(tmp_path)
    (tmp_path / "c.pem").write_text("a note")
    code, lines = with_tls(tmp_path, "--ssl-certificate", "c.pem", "--ssl-ca", "ca.pem")
    assert code == ExitCode.CONFIG
    assert lines[0].endswith("(c.pem): not PEM, or without the certificate or its private key")


def test_of_an_encrypted_key_it_is_said_that_its_password_is_another(tmp_path: Path) -> None:
    Authority(tmp_path)
    key = ec.generate_private_key(ec.SECP256R1())
    locked = BestAvailableEncryption(b"secret")
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)
    (tmp_path / "key.pem").write_bytes(content)
    words = ("--ssl-certificate", "ca.pem", "--ssl-key", "key.pem", "--ssl-ca", "ca.pem")
    code, lines = with_tls(tmp_path, *words)
    assert code == ExitCode.CONFIG
    assert lines[0].endswith("the private key is encrypted, and not by ssl_key_password")


def test_a_key_of_another_certificate_is_a_wrong_setting(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server(), authority.server("other")
    words = ("--ssl-certificate", "server.pem", "--ssl-key", "other.pem", "--ssl-ca", "ca.pem")
    code, lines = with_tls(tmp_path, *words)
    assert (code, "(server.pem, other.pem): " in lines[0]) == (ExitCode.CONFIG, True)
    assert lines[0].endswith(OTHER_KEY)


def test_of_a_chain_that_begins_with_an_authority_it_is_said_what_comes_first(
    tmp_path: Path,
) -> None:
    Authority(tmp_path).server()
    own = (tmp_path / "server.pem").read_text()
    certificate = own[own.index("-----BEGIN CERTIFICATE") :]
    (tmp_path / "key.pem").write_text(own[: own.index("-----BEGIN CERTIFICATE")])
    (tmp_path / "chain.pem").write_text((tmp_path / "ca.pem").read_text() + certificate)
    words = ("--ssl-certificate", "chain.pem", "--ssl-key", "key.pem", "--ssl-ca", "ca.pem")
    code, lines = with_tls(tmp_path, *words)
    assert code == ExitCode.CONFIG
    assert lines[0].endswith(f"(chain.pem, key.pem): {OTHER_KEY}")


def test_a_file_in_the_place_of_the_data_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a note")
    seen = segbroker("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    said = f"Error: {tmp_path}/data is a file: no data directory can be there\n"
    assert (seen.returncode, seen.stderr.decode()) == (9, said)


def test_a_configuration_that_is_no_text_is_said(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_bytes(b"data = '\xff'\n")
    seen = segbroker("serve", "--config", str(config))
    assert seen.returncode == 3
    assert seen.stderr.decode() == f"Error: {config} is not text in UTF-8, as TOML is\n"


@pytest.mark.parametrize(
    ("words", "env", "toml", "named"),
    [
        (["--listen", "nowhere"], {}, "", "listen = 'nowhere' is not host:port"),
        (["--listen", " 127.0.0.1:1"], {}, "", "listen = ' 127.0.0.1:1' is not host:port"),
        (["--listen", "*:9092"], {}, "", "listen = '*:9092': every address is 0.0.0.0, or [::]"),
        (["--advertised", "0.0.0.0:1"], {}, "", "advertised: no client can connect to 0.0.0.0:1"),
        (
            ["--listeners", "PLAINTEXT://127.0.0.1:0", "--advertised-listeners", "PLAINTEXT://:1"],
            {},
            "",
            "advertised_listeners: no client can connect to 0.0.0.0:1",
        ),
        (["--lanes", "0"], {}, "", "lanes = 0 is outside [1, 256] (from the flag)"),
        (
            [],
            {"SEGBROKER_LANES": "many"},
            "lanes = 1",
            "lanes = 'many' is not a whole number (from the environment)",
        ),
        ([], {"SEGBROKER_LANE": "1"}, "", "unknown key 'lane' (from the environment)"),
        ([], {}, "lanes = 'many'", "lanes = 'many' is not a whole number (from the file)"),
        ([], {}, "lane = 1", "unknown key 'lane' (from the file)"),
        ([], {}, "lanes", "the configuration file is not TOML"),
    ],
)
def test_a_wrong_setting_is_said_by_key_and_value(
    tmp_path: Path, words: list[str], env: dict[str, str], toml: str, named: str
) -> None:
    (tmp_path / "broker.toml").write_text(toml)
    config = ["--config", str(tmp_path / "broker.toml")] if toml else []
    run = segbroker("serve", *words, *config, env=env, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (3, b"")
    assert run.stderr.decode().startswith(f"Error: {named}")
    assert not (tmp_path / "segbroker-data").exists()


def test_flags_win_over_variables_and_variables_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text("lanes = 1\nflushers = 1\nslots_max = 1\n")
    env = {"SEGBROKER_CONFIG": str(tmp_path / "broker.toml")}
    env |= {"SEGBROKER_LANES": "2", "SEGBROKER_FLUSHERS": "2"}
    shown = segbroker("serve", "--lanes", "3", "--show-config", env=env).stdout.decode()
    rows = dict(line.split(" = ", 1) for line in shown.splitlines())
    assert tomllib.loads(shown)["lanes"] == 3
    assert rows["lanes"].split() == ["3", "#", "flag"]
    assert rows["flushers"].split() == ["2", "#", "environment"]
    assert rows["slots_max"].split() == ["1", "#", "file"]
    assert rows["auto_create_topics"].split() == ["true", "#", "default"]


LISTENERS = "INSIDE://127.0.0.1:0,OUT-SIDE://127.0.0.1:0"
PROTOCOLS = "INSIDE:PLAINTEXT,OUT-SIDE:SASL_SSL"


def test_what_one_listener_has_of_its_own_is_a_flag_a_variable_and_a_line_of_the_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "broker.toml").write_text('listener_name_out_side_ssl_key = "a.key"\n')
    env = {"SEGBROKER_CONFIG": str(tmp_path / "broker.toml")}
    env |= {"SEGBROKER_LISTENER_NAME_OUT_SIDE_SSL_KEY_PASSWORD": "s3cret"}
    words = ["--listeners", LISTENERS, "--listener-security-protocol-map", PROTOCOLS]
    words += ["--listener-name-out-side-ssl-certificate=a.pem", "--show-config"]
    words += ["--listener-name-inside-allow-anonymous-network"]
    seen = segbroker("serve", *words, env=env)
    assert seen.returncode == 0, seen.stderr
    rows = seen.stdout.decode().splitlines()
    of_listeners = [" ".join(row.split()) for row in rows if "listener_name_" in row]
    assert of_listeners == [
        "listener_name_inside_allow_anonymous_network = true # flag",
        'listener_name_out_side_ssl_certificate = "a.pem" # flag',
        'listener_name_out_side_ssl_key = "a.key" # file',
        "# listener_name_out_side_ssl_key_password is set and not shown # environment",
    ]


@pytest.mark.parametrize(
    ("flag", "code", "said"),
    [
        ("--listener-name-outside-ssl-ca=c", 3, "no such listener, there is INSIDE, OUT-SIDE"),
        ("--listener-name-out-side-ssl-cas=c", 3, "a listener may have of its own ssl_certificate"),
        ("--listener-name-inside-ssl-ca=c", 3, "INSIDE is PLAINTEXT, which is without TLS"),
        ("--listener-name-out-side-ssl-key-password=c", 2, "is a secret, and has no flag"),
        ("--listener-name-out-side-sasl-mechanisms=MD5", 3, "sasl_mechanisms: 'MD5' is none of"),
    ],
)
def test_a_wrong_setting_of_one_listener_is_said_by_listener_and_key(
    flag: str, code: int, said: str
) -> None:
    words = ["--listeners", LISTENERS, "--listener-security-protocol-map", PROTOCOLS]
    seen = segbroker("serve", *words, "--ssl-certificate", "c.pem", flag)
    assert (seen.returncode, seen.stdout) == (code, b"")
    assert said in seen.stderr.decode()


@pytest.mark.parametrize("log", ["nobody reads it", "its disk is full"])
def test_a_log_that_cannot_be_written_does_not_end_the_broker(tmp_path: Path, log: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    if log != "nobody reads it":
        os.close(writing)
        writing = os.open("/dev/full", os.O_WRONLY)
    with os.fdopen(writing, "wb") as errors:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(),
        )
    assert process.stdout is not None
    address = process.stdout.readline().decode().split()[-1]
    with Producer(address) as producer:
        producer.send("t", b"x").result()  # creates the topic, which the log would tell
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


def test_a_full_pipe_behind_standard_output_holds_nothing_up(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    room = 0
    with suppress(BlockingIOError):
        while True:
            room += os.write(writing, bytes(select.PIPE_BUF))
    os.set_blocking(writing, True)
    process = subprocess.Popen(
        [*COMMAND, "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(SEGBROKER_LOG_FORMAT="json"),
    )
    os.close(writing)
    assert process.stderr is not None
    with os.fdopen(reading, "rb") as output:
        rows = (json.loads(line) for line in process.stderr)
        started = next(row for row in rows if row["event"] == "broker_started")
        with Producer(started["address"]) as producer:
            producer.send("t", b"x").result()
        process.send_signal(signal.SIGHUP)  # is obeyed
        assert any(row["event"] == "signal_received" for row in rows)
        output.read(room)
        assert output.readline().decode() == f"segbroker listening on {started['address']}\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


def refused_start(tmp_path: Path, script: str) -> list[str]:
    """The error and the hint with which the system refuses `serve`, begun by this script."""
    words = ("serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    run = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert run.returncode == ExitCode.SYSTEM
    return run.stderr.splitlines()[-2:]


def test_a_start_that_gets_no_thread_says_which_limits_there_are(tmp_path: Path) -> None:
    script = (
        "import _thread, threading\n"
        "def refused(*_, **__):"
        ' raise RuntimeError("can\'t start new thread")\n'  # as CPython says it
        "_thread.start_new_thread = threading._start_new_thread = refused\n"
        "_thread.start_joinable_thread = threading._start_joinable_thread = refused\n"  # 3.13
        "from segbroker.cli.main import main; main()\n"
    )
    assert refused_start(tmp_path, script) == [
        "Error: the system gives no further thread",
        "Hint: a limit of tasks or of memory is reached: TasksMax, pids.max, ulimit -u, ulimit -v",
    ]


@pytest.mark.parametrize(
    "error", ["MemoryError", "trio.TrioInternalError('internal error') from MemoryError()"]
)
def test_a_broker_that_gets_no_memory_ends_with_a_sentence(tmp_path: Path, error: str) -> None:
    script = (
        "import segbroker.broker.server as server, trio\n"
        f"def refused(*_): raise {error}\n"
        "server.listen_all = refused\n"
        "from segbroker.cli.main import main; main()\n"
    )
    assert refused_start(tmp_path, script) == [
        "Error: the system gives no further memory",
        "Hint: a limit of memory is reached: vm.overcommit_memory, LimitAS, ulimit -v",
    ]


def test_a_start_whose_call_is_refused_says_what_may_refuse_it(tmp_path: Path) -> None:
    script = (
        "import os, socket\n"
        "def refused(*_): raise PermissionError(1, os.strerror(1))\n"
        "socket.socket.setsockopt = refused\n"
        "from segbroker.cli.main import main; main()\n"
    )
    assert refused_start(tmp_path, script) == [
        "Error: Operation not permitted",
        "Hint: a filter may refuse the call (seccomp, SystemCallFilter): strace -f names it",
    ]


def test_the_threads_of_a_broker_are_there_from_the_start(tmp_path: Path) -> None:
    """One that is started for a request may not be given any more, or waited for in vain."""
    with running(tmp_path / "data", "--lanes=20") as daemon:
        tasks = Path(f"/proc/{daemon.process.pid}/task")
        before = {task.name for task in tasks.iterdir()}
        assert len(before) > 20
        with Producer(daemon.address) as producer:  # to partitions that are opened for it
            producer.send_many("t", [bytes(100_000)] * 20)
        assert {task.name for task in tasks.iterdir()} == before


def test_a_start_that_gets_no_descriptor_says_which_limit_there_is(tmp_path: Path) -> None:
    words = ("serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    told = 0
    for limit in range(6, 64, 2):  # at each of which it is something else that is refused
        process = subprocess.Popen(
            [*COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),  # noqa: B023
        )
        assert process.stdout is not None
        is_enough = process.stdout.readline() != ""
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT_S)
        if is_enough:
            break
        *_, error, hint = errors.splitlines()
        assert (process.returncode, error[-19:]) == (ExitCode.SYSTEM, "Too many open files")
        assert hint == "Hint: the limit of file descriptors is reached: LimitNOFILE, ulimit -n"
        told += 1
    assert told > 2


def has_open(pid: int, name: str) -> bool:
    """Whether a process has a file of this name open."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if descriptor.readlink().name == name:
                return True
    return False


def test_a_third_signal_ends_a_broker_that_can_do_nothing(tmp_path: Path) -> None:
    with running(tmp_path / "data"):
        pass
    (snapshot,) = (tmp_path / "data/meta").iterdir()
    snapshot.unlink()
    os.mkfifo(snapshot)  # whoever opens it waits
    process = launch(tmp_path / "data")
    log = log_of(tmp_path / "data")
    before = log.read_text().count("signal_received")
    try:
        until(lambda: has_open(process.pid, "LOCK"))
        for number, sent in enumerate((signal.SIGINT, signal.SIGTERM), 1):
            process.send_signal(sent)
            until(lambda: log.read_text().count("signal_received") == before + number)  # noqa: B023
        assert process.poll() is None
        process.terminate()
        assert process.wait(60) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def test_what_the_encoding_of_the_output_does_not_have_is_escaped() -> None:
    words = ("serve", "--data", "größe-€", "--show-config")
    env = environment(PYTHONIOENCODING="latin-1")
    shown = subprocess.run([*COMMAND, *words], capture_output=True, env=env, timeout=TIMEOUT_S)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert shown.stdout.startswith('data = "größe-\\u20ac"'.encode("latin-1"))


def test_settings_that_are_shown_can_be_saved_and_read_again(tmp_path: Path) -> None:
    data = str(tmp_path / 'a "quoted" \\ name')
    env = {"SEGBROKER_INITIAL_USER": "admin", "SEGBROKER_INITIAL_PASSWORD": "se#cret"}
    shown = segbroker("serve", "--data", data, "--show-config", env=env).stdout.decode()
    assert tomllib.loads(shown)["data"] == data
    # Not stars, which would be a password when they are read again.
    assert "initial_password" not in tomllib.loads(shown)
    assert "# initial_password is set and not shown" in shown
    assert "se#cret" not in shown


def test_a_file_with_the_mark_of_utf_8_in_front_is_read(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('listen = "127.0.0.1:19999"\n', encoding="utf-8-sig")
    shown = segbroker("serve", "--config", str(config), "--show-config")
    assert shown.returncode == 0, shown.stderr
    assert tomllib.loads(shown.stdout.decode())["listen"] == "127.0.0.1:19999"


def test_every_setting_but_secrets_is_a_flag() -> None:
    text = segbroker("serve", "--help").stdout.decode()
    for spec in keys():
        is_flag = f"--{spec.name.replace('_', '-')} " in text.replace("/", " ")
        assert is_flag != spec.metadata["secret"], spec.name


def test_a_switch_can_be_turned_off(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data", "--no-auto-create-topics")
    try:
        seen = segbroker("produce", "nobody-made-it", "-b", daemon.address, stdin=b"x\n")
    finally:
        daemon.stop()
    assert seen.returncode in (5, 7)
    assert "nobody-made-it" in seen.stderr.decode()


@pytest.mark.parametrize("is_refused", [False, True])
def test_the_daemon_takes_as_many_descriptors_as_the_system_allows(
    tmp_path: Path, is_refused: bool
) -> None:
    """Refused: by a filter of system calls, or where the hard limit is above fs.nr_open."""
    script = (
        "import resource\n"
        "def refused(*_): raise ValueError('not allowed to raise maximum limit')\n"  # EPERM
        f"if {is_refused}: resource.setrlimit = refused\n"
        "from segbroker.cli.main import main; main()\n"
    )

    def low_soft_limit() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

    words = ("serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
        preexec_fn=low_soft_limit,
    )
    try:
        assert process.stdout is not None
        assert "listening on" in process.stdout.readline()
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == (64 if is_refused else hard)
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
