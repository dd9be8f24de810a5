"""-X, contexts and users on the command line, against a daemon that asks for TLS and a login."""

import json
import os
import pwd
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from segbroker.cli import command
from segbroker.cli.exit_codes import ExitCode
from segbroker.cli.main import segbroker

from ..support.certificates import Authority
from ..support.daemon import Daemon, start
from .conftest import COMMAND

PASSWORD = "wonderland"


class Shell:
    """Runs segbroker in this process, with a configuration folder of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment: dict[str, str | None] = {
            name: None for name in os.environ if name.startswith("SEGBROKER_")
        }
        self.environment |= {"XDG_CONFIG_HOME": str(home), "PW": PASSWORD}

    def __call__(self, *words: str, stdin: str | bytes = "", code: int = 0) -> str:
        """stdout and stderr of a command that ends with `code`."""
        run = CliRunner().invoke(segbroker, words, input=stdin, env=self.environment)
        assert run.exit_code == code, run.output + repr(run.exception)
        return run.output

    @property
    def stored(self) -> Path:
        return self.home / "segbroker" / "contexts.json"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "config")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, list[str]]]:
    """A daemon whose first user was made offline, and the -X of that user."""
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority(folder)
    data = folder / "data"
    made = Shell(folder)(
        "user", "add", "alice", "--password-stdin", "--data-dir", str(data), stdin=PASSWORD + "\n"
    )
    assert made == f"created user alice in a new data directory, {data}\n"
    daemon = start(
        data,
        "--listeners",
        "SASL_SSL://127.0.0.1:0",
        "--ssl-certificate",
        str(authority.server()),
    )
    words = []
    for text in (
        "security.protocol=SASL_SSL",
        f"ssl.ca.location={authority.file}",
        "sasl.mechanism=SCRAM-SHA-512",
        "sasl.username=alice",
    ):
        words += ["-X", text]
    try:
        yield daemon, words
    finally:
        daemon.stop()


def test_every_command_that_connects_takes_properties(
    guarded: tuple[Daemon, list[str]], shell: Shell
) -> None:
    daemon, words = guarded
    how = ["-b", daemon.address, *words, "-X", "sasl.password=env:PW"]
    for words, stdin, printed in (
        (["produce", "greetings", *how], "hello\n", ""),
        (["consume", "greetings", "-e", *how], "", "hello\n"),
    ):
        run = subprocess.run(
            [*COMMAND, *words],
            input=stdin,
            capture_output=True,
            text=True,
            env={k: v for k, v in (os.environ | shell.environment).items() if v is not None},
            timeout=60,
        )
        assert (run.returncode, run.stdout) == (0, printed), run.stderr
    assert "greetings" in shell("topic", "list", *how)
    assert shell("group", "list", *how) == ""


def test_a_password_is_read_from_a_file_without_its_newline(
    guarded: tuple[Daemon, list[str]], shell: Shell, tmp_path: Path
) -> None:
    daemon, words = guarded
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD + "\n")
    shell("topic", "list", "-b", daemon.address, *words, "-X", f"sasl.password=file:{secret}")
    secret.write_text("guessed\n")
    said = shell(
        "topic", "list", "-b", daemon.address, *words, "-X", f"sasl.password=file:{secret}", code=6
    )
    assert said.startswith("Error: ")
    assert "invalid credentials" in said
    assert "guessed" not in said


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("security.protocl=SSL", "unknown property 'security.protocl'"),
        ("security.protocol=TLS", "'TLS' is not one of PLAINTEXT"),
        ("nonsense", "not KEY=VALUE (it has 8 characters; not shown"),
    ],
)
def test_a_property_that_does_not_exist_is_said_before_anything_is_done(
    shell: Shell, text: str, about: str
) -> None:
    assert about in shell("topic", "list", "-X", text, code=2)


def test_a_secret_that_is_not_where_it_is_said_to_be_is_named(shell: Shell) -> None:
    words = ["-X", "security.protocol=SASL_SSL", "-X", "sasl.username=a"]
    said = shell("topic", "list", *words, "-X", "sasl.password=env:NOPE", code=2)
    assert "the environment variable NOPE is not set" in said
    said = shell("topic", "list", *words, "-X", "sasl.password=file:/nonexistent/x", code=2)
    assert "/nonexistent/x" in said


def test_a_file_of_authorities_that_is_not_there_is_a_wrong_command_line(shell: Shell) -> None:
    tls = ["-X", "security.protocol=SSL", "-X", "ssl.ca.location=/nonexistent/ca.pem"]
    said = shell("topic", "list", "-b", "127.0.0.1:1", *tls, code=2)
    assert "the files for TLS cannot be used (/nonexistent/ca.pem)" in said


def test_tls_that_a_port_does_not_speak_is_not_a_broker_that_is_not_there(
    daemon: Daemon, shell: Shell
) -> None:
    said = shell("topic", "list", "-b", daemon.address, "-X", "security.protocol=SSL", code=4)
    assert "Hint: the port seems to be without TLS" in said


def test_who_removes_a_user_that_is_not_there_is_told_where_they_are_listed(
    guarded: tuple[Daemon, list[str]], shell: Shell
) -> None:
    daemon, words = guarded
    how = ["-b", daemon.address, *words, "-X", "sasl.password=env:PW"]
    said = shell("user", "remove", "nobody", "--yes", *how, code=5)
    assert said == "Error: user 'nobody': there is no such user\nHint: segbroker user list\n"


def test_a_context_is_used_until_another_broker_is_named(
    guarded: tuple[Daemon, list[str]], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, words = guarded
    how = ["--bootstrap", daemon.address, *words, "-X", "sasl.password=env:PW"]
    assert "in use" in shell("context", "add", "prod", *how)
    assert shell.stored.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in shell.stored.read_text()
    shell("topic", "create", "by-context")
    assert "by-context" in shell("topic", "list", "--context", "prod")
    # Named otherwise, its properties are not used: the login fails before it begins.
    shell("topic", "list", "-b", daemon.address, code=4)
    shell("context", "use", "--none")
    monkeypatch.setattr(command, "DEFAULT_BOOTSTRAP", "127.0.0.1:1")  # a broker may run on 9092
    assert "127.0.0.1:1" in shell("topic", "list", code=4)
    shell("context", "use", "prod")
    (row,) = json.loads(shell("context", "list", "--json"))
    assert (row["name"], row["protocol"], row["user"], row["in_use"]) == (
        "prod",
        "SASL_SSL",
        "alice",
        True,
    )
    shell("context", "remove", "prod")
    assert shell("context", "list") == ""
    shell("context", "use", "prod", code=5)


def test_a_context_and_another_broker_are_not_mixed(shell: Shell) -> None:
    where = "127.0.0.1:1"
    shell("context", "add", "prod", "--bootstrap", where)
    said = shell("topic", "list", "--context", "prod", "-b", "127.0.0.1:2", code=2)
    assert "two brokers" in said
    assert "no context ''" in shell("topic", "list", "--context", "", code=5)  # an unset variable
    shell.environment["SEGBROKER_CONTEXT"] = "prod"
    assert "two brokers" in shell("topic", "list", "-b", "127.0.0.1:2", code=2)
    shell.environment["SEGBROKER_BOOTSTRAP"] = "127.0.0.1:2"
    assert where in shell("topic", "list", code=4)


def test_a_context_is_not_replaced_by_accident(shell: Shell) -> None:
    shell("context", "add", "a", "--bootstrap", "one:1")
    assert "--force" in shell("context", "add", "a", "--bootstrap", "two:2", code=6)
    shell("context", "add", "a", "--bootstrap", "two:2", "--force")
    assert "two:2" in shell("context", "list")


def test_contexts_that_are_stored_at_one_moment_are_all_there(shell: Shell) -> None:
    words = [*COMMAND, "context", "add", "-b", "host:1"]
    given = {name: value for name, value in shell.environment.items() if value is not None}
    several = [
        subprocess.Popen([*words, f"c{number}"], env=os.environ | given, stderr=subprocess.DEVNULL)
        for number in range(6)
    ]
    assert [one.wait() for one in several] == [0] * 6
    stored = json.loads(shell("context", "list", "--json"))
    assert [one["name"] for one in stored] == [f"c{number}" for number in range(6)]
    assert [one["in_use"] for one in stored].count(True) == 1


def test_contexts_that_could_not_be_stored_leave_nothing_behind(shell: Shell) -> None:
    """Least of all a password: those that were stored before are as they were."""
    shell("context", "add", "a", "-b", "one:1")
    before = shell.stored.read_bytes()
    password = f"sasl.password={PASSWORD}"
    _, most = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), most))
    try:
        said = shell("context", "add", "b", "-b", "two:2", "-X", password, code=9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert said.startswith(f"Error: {shell.stored.parent}/")
    assert "File too large" in said
    assert shell.stored.read_bytes() == before
    assert {file.name for file in shell.stored.parent.iterdir()} == {
        shell.stored.name,
        ".contexts.lock",
    }


def test_stored_contexts_that_cannot_be_read_are_an_error_in_a_sentence(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("context", "add", "a", "--bootstrap", "one:1")
    shell.stored.write_text("[" * 100_000)
    assert f"{shell.stored} cannot be read" in shell("topic", "list", code=3)
    shell.stored.unlink()
    shell.stored.mkdir()
    for words in (["topic", "list"], ["context", "list"]):
        assert shell(*words, code=9) == f"Error: {shell.stored}: Is a directory\n"
    # Who has no home has no contexts either.
    shell.environment["XDG_CONFIG_HOME"] = shell.environment["HOME"] = None
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert shell("context", "list") == ""
    assert "no home directory" in shell("context", "add", "a", "--bootstrap", "one:1", code=9)


def test_a_data_directory_needs_no_context(shell: Shell, tmp_path: Path) -> None:
    """Who runs it as another user (`runuser -u`) has a HOME that is not his own."""
    shell.stored.parent.mkdir(parents=True)
    shell.stored.write_text("not to be read")
    data = str(tmp_path / "data")
    shell("user", "add", "ann", "--password-env", "PW", "--data-dir", data)
    assert "\nann " in shell("user", "list", "--data-dir", data)
    assert "cannot be read" in shell("user", "list", code=3)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("null", "the whole of it is no JSON object"),
        ("{}", "'contexts' is no JSON object"),
        ('{"contexts": {"a": null}}', "context 'a' is no JSON object"),
        ('{"contexts": {"a": {}}}', "'properties' of context 'a' is no JSON object"),
        ('{"contexts": {"a": {"properties": {}}}}', "context 'a' has a value that is not text"),
        ('{"contexts": {}, "current": 1}', "'current' is no name"),
    ],
)
def test_what_is_wrong_with_stored_contexts_is_said_in_words(
    shell: Shell, stored: str, said: str
) -> None:
    shell("context", "add", "a", "--bootstrap", "one:1")
    shell.stored.write_text(stored)
    hint = "Hint: correct it, or remove it and add the contexts again\n"
    for words in (["topic", "list"], ["context", "add", "b", "--bootstrap", "two:2"]):
        told = shell(*words, code=ExitCode.CONFIG)
        assert told == f"Error: {shell.stored} cannot be read: {said}\n{hint}"


def test_a_context_in_use_that_is_not_there_is_not_another_broker(shell: Shell) -> None:
    shell("context", "add", "prod", "--bootstrap", "one:1")
    renamed = json.loads(shell.stored.read_text())
    renamed["contexts"]["production"] = renamed["contexts"].pop("prod")
    shell.stored.write_text(json.dumps(renamed))
    told = shell("topic", "list", code=ExitCode.NOT_FOUND)
    assert told == "Error: there is no context 'prod'\nHint: segbroker context list\n"
    assert [one["in_use"] for one in json.loads(shell("context", "list", "--json"))] == [False]
    shell("context", "use", "production")
    assert "one" in shell("topic", "list", code=ExitCode.UNREACHABLE)


def test_a_stored_password_that_others_can_read_is_refused(shell: Shell) -> None:
    shell(
        "context", "add", "a", "--bootstrap", "one:1", "-X", "security.protocol=SASL_SSL",
        "-X", "sasl.username=u", "-X", "sasl.password=hush",
    )  # fmt: skip
    assert "hush" not in shell("context", "list")
    shell.stored.chmod(0o644)
    said = shell("topic", "list", code=3)
    assert f"chmod 600 {shell.stored}" in said
    assert "hush" not in said


def test_users_are_added_changed_and_removed(
    guarded: tuple[Daemon, list[str]], shell: Shell
) -> None:
    daemon, words = guarded
    shell(
        "context", "add", "prod", "--bootstrap", daemon.address, *words,
        "-X", "sasl.password=env:PW",
    )  # fmt: skip
    shell("user", "add", "bob", "--password-stdin", stdin="builder\n")
    assert "passwd bob" in shell("user", "add", "bob", "--password-env", "PW", code=6)
    bob = ["-X", "sasl.username=bob"]
    shell("topic", "list", *bob, "-X", "sasl.password=builder")
    shell("user", "passwd", "bob", "--password-env", "PW")
    shell("topic", "list", *bob, "-X", "sasl.password=builder", code=6)
    shell("topic", "list", *bob)
    names = [row["name"] for row in json.loads(shell("user", "list", "--json"))]
    assert names == ["alice", "bob"]
    shell("user", "remove", "bob", "--yes")
    shell("user", "remove", "bob", "--yes", code=5)
    shell("user", "passwd", "bob", "--password-env", "PW", code=5)
    shell("topic", "list", *bob, code=6)


def test_users_of_a_directory_are_changed_only_while_nobody_serves_it(
    guarded: tuple[Daemon, list[str]], shell: Shell, tmp_path: Path
) -> None:
    daemon, _ = guarded
    said = shell(
        "user", "passwd", "alice", "--password-env", "PW", "--data-dir", str(daemon.data), code=9
    )
    assert str(daemon.data) in said
    fresh = ["--data-dir", str(tmp_path / "fresh")]
    said = shell("user", "add", "carol", "--password-env", "PW", *fresh)
    assert said.splitlines()[-1] == f"created user carol in a new data directory, {fresh[1]}"
    said = shell("user", "add", "dave", "--password-env", "PW", *fresh)
    assert said.splitlines()[-1] == "created user dave"
    shell("user", "remove", "dave", "--yes", *fresh)
    shell("user", "passwd", "carol", "--password-env", "PW", "--iterations", "4096", *fresh)
    assert "4,096" in shell("user", "list", *fresh)
    shell("user", "remove", "carol", "--yes", *fresh)
    assert shell("user", "list", *fresh) == ""
    # What a start does is told on standard error.
    (tmp_path / "fresh" / "topics" / "of-nobody").mkdir()
    told = CliRunner().invoke(segbroker, ["user", "list", "--json", *fresh])
    assert (json.loads(told.stdout), "recovery_orphan_removed" in told.stderr) == ([], True)
    mistyped = tmp_path / "frehs"
    for words in (["list"], ["remove", "carol", "--yes"], ["passwd", "carol", "--password-env=PW"]):
        said = shell("user", *words, "--data-dir", str(mistyped), code=2)
        assert f"{mistyped} is not a data directory" in said
    assert not mistyped.exists()


def test_a_password_that_is_not_text_is_refused_without_a_letter_of_it(
    shell: Shell, tmp_path: Path
) -> None:
    add = ["user", "add", "carol", "--data-dir", str(tmp_path / "data")]
    stored = tmp_path / "password"
    stored.write_bytes(b"pa\xe9ss\n")
    refusals = [
        shell(*add, "--password-stdin", stdin=b"pa\xe9ss\n", code=2),
        shell(*add, "--password-file", str(stored), code=2),
    ]
    shell.environment["ODD"] = "pa\udce9ss"
    refusals.append(shell(*add, "--password-env", "ODD", code=2))
    assert ["is not text" in said for said in refusals] == [True] * 3
    assert not any("Traceback" in said or "e9" in said for said in refusals)


def test_a_password_that_nobody_could_log_in_with_is_refused_with_a_broker_and_without(
    guarded: tuple[Daemon, list[str]], shell: Shell, tmp_path: Path
) -> None:
    daemon, words = guarded
    stored = tmp_path / "password"
    for content in ("hush".encode("utf-16-le"), b"hush" * 2_000):
        stored.write_bytes(content)  # as an editor of another system stores it; a key of a machine
        add = ["user", "add", "carol", "--password-file", str(stored)]
        at_broker = ["-b", daemon.address, *words, "-X", "sasl.password=env:PW"]
        for where in (at_broker, ["--data-dir", str(tmp_path / "data")]):
            said = shell(*add, *where, code=2)
            assert "1 to 4096 bytes and no NUL" in said
            assert "hush" not in said
    assert not (tmp_path / "data").exists()


def test_what_would_be_asked_is_an_error_where_nobody_is(shell: Shell, tmp_path: Path) -> None:
    for words in (["add", "alice"], ["remove", "alice"]):
        said = shell("user", *words, "--data-dir", str(tmp_path / "data"), code=2)
        assert "there is no terminal to ask on" in said


def test_who_does_not_log_in_is_told_of_it(shell: Shell, guarded: tuple[Daemon, list[str]]) -> None:
    said = shell("topic", "list", "-b", guarded[0].address, code=4)
    assert "-X security.protocol" in said.splitlines()[-1]


def test_an_empty_password_is_none(shell: Shell, tmp_path: Path) -> None:
    shell("user", "add", "a", "--password-stdin", "--data-dir", str(tmp_path / "d"), code=2)


def test_the_files_of_a_context_are_found_from_any_directory(
    guarded: tuple[Daemon, list[str]], shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, words = guarded
    (authority,) = (word.partition("=")[2] for word in words if word.startswith("ssl.ca."))
    (tmp_path / "password").write_text(f"{shell.environment['PW']}\n")
    monkeypatch.chdir(tmp_path)
    beside = os.path.relpath(authority, tmp_path)
    shell(
        "context", "add", "prod", "--bootstrap", daemon.address, *words,
        "-X", f"ssl.ca.location={beside}", "-X", "sasl.password=file:password",
    )  # fmt: skip
    shell("topic", "list")
    monkeypatch.chdir("/")
    shell("topic", "list")
