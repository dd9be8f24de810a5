"""The commands that pages and help texts print can be typed, and the pages name every option."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from segbroker.cli.main import segbroker
from segbroker.client import Security

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SPARK = (ROOT / "docs" / "spark.md").read_text()
CLI = (ROOT / "docs" / "cli.md").read_text()
CONFIGURATION = CLI + (ROOT / "docs" / "configuration.md").read_text()
# Behind these a shell begins another command, or a file.
ENDS: Final = frozenset({"|", ">", "<", "&", "&&", "||", ";", "2>", ">>"})
# What every command has, or every one that talks to a broker.
EVERYWHERE: Final = frozenset({"--help", "--debug", "--bootstrap", "-b", "-X", "--context"})


def commands(
    command: click.Command = segbroker,
    words: tuple[str, ...] = (),
    parent: click.Context | None = None,
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that is not hidden, with the words that call it."""
    ctx = click.Context(command, parent=parent)
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name in command.list_commands(ctx):
        found = command.get_command(ctx, name)
        assert found is not None
        if not found.hidden:
            yield from commands(found, (*words, name), ctx)


def typed(text: str) -> Iterator[list[str]]:
    """The words behind `segbroker` in each such line of a block for a shell."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        words = shlex.split(re.sub(r"\$\(.*?\)", "x", line), comments=True)
        while "segbroker" in words:
            words = words[words.index("segbroker") + 1 :]
            end = next((at for at, word in enumerate(words) if word in ENDS), len(words))
            if end:
                yield words[:end]


def blocks(page: Path) -> Iterator[str]:
    for kind, text in re.findall(
        r"^ *```(sh|console)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL
    ):
        if kind == "sh":
            yield text
        else:  # behind a prompt; a line that ends in a backslash goes on
            yield "\n".join(re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.MULTILINE))


def parse(words: list[str]) -> None:
    """Read a command line as the command would, and run nothing."""
    command: click.Command = segbroker
    ctx, rest = click.Context(segbroker, info_name="segbroker"), words
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(ctx, rest)
        assert found is not None
        if "--help" in rest[:1]:
            return
        ctx, command = click.Context(found, info_name=name, parent=ctx), found
    try:
        command.make_context(ctx.info_name, list(rest), ctx.parent)
    except click.BadParameter as exc:
        if not exc.message.endswith("does not exist."):  # a directory or file of the example
            raise


@pytest.fixture(autouse=True)
def without_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs this."""
    for name in ("SEGBROKER_CONTEXT", "SEGBROKER_BOOTSTRAP", "SEGBROKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_every_command_of_the_pages_can_be_typed() -> None:
    seen = 0
    for page in PAGES:
        for words in (words for block in blocks(page) for words in typed(block)):
            seen += 1
            try:
                parse(words)
            except click.ClickException as exc:
                pytest.fail(f"{page.name}: segbroker {shlex.join(words)}: {exc.format_message()}")
    assert seen > 80


def test_every_example_of_a_help_text_can_be_typed() -> None:
    for words, command in commands():
        text, _, examples = (command.help or "").partition("Example")
        shown = list(typed(examples or text))
        assert shown, words
        for example in shown:
            parse(example)


def test_the_pages_name_every_option() -> None:
    for words, command in commands():
        page = {"serve": CONFIGURATION, "spark": SPARK}.get(words[0], CLI)
        for option in command.params:
            if isinstance(option, click.Option) and not EVERYWHERE & {*option.opts}:
                names = *option.opts, option.name or ""
                found = any(
                    re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page) for name in names
                )
                assert found, f"{' '.join(words)} {'/'.join(option.opts)}"


def test_the_page_names_every_property_of_a_connection() -> None:
    with pytest.raises(ValueError, match="known are") as refused:
        Security.from_properties({"none": ""})
    for name in str(refused.value).partition("known are ")[2].split(", "):
        # That of an id that has two names is written once.
        short = name.replace("sasl.oauthbearer.client.credentials", "….client.credentials")
        assert f"`{name}`" in CLI or f"`{short}`" in CLI, name


def test_lists_of_commands_cut_no_sentence_off() -> None:
    groups = {words[:-1] for words, _ in commands()}
    assert len(groups) > 5
    for words in groups:
        said = CliRunner().invoke(segbroker, [*words, "--help"], terminal_width=80).output
        listed = said.partition("Commands:")[2].partition("\n\n")[0]
        assert listed.strip(), words
        assert "..." not in listed, said
