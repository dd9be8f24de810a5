"""The snippets of the pages about the client run, against a real broker, in their order."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from segbroker.client.settings import (
    ClientSettings,
    ConsumerOptions,
    ConsumerSettings,
    GroupOptions,
    GroupSettings,
    ProducerOptions,
    ProducerSettings,
)
from segbroker.client.share_settings import ShareOptions, ShareSettings
from segbroker.testing.embedded import EmbeddedBroker

from ..support.daemon import Daemon

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = DOCS / "client.md"


def run_snippets(page: Path, count: int, address: str) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(snippets) == count
    for snippet in snippets:
        code = snippet.replace("127.0.0.1:9092", address)
        exec(compile(code, str(page), "exec"), {"__name__": "guide"})


def test_the_snippets_of_the_guide_run(daemon: Daemon) -> None:
    run_snippets(GUIDE, 8, daemon.address)


def test_the_snippets_about_logins_name_options_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    snippets = re.findall(r"^```py\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(snippets) == 2
    monkeypatch.setenv("PASSWORD", "secret")
    monkeypatch.setenv("CLIENT_SECRET", "secret")
    names: dict[str, object] = {}
    for snippet in snippets:
        # The broker that it goes on to talk to is nowhere.
        code = re.sub(r"^with .*\n(    .*\n)*", "", snippet, flags=re.MULTILINE)
        exec(compile(code, str(GUIDE), "exec"), names)


def test_the_snippet_about_quotas_runs() -> None:
    with EmbeddedBroker() as broker:  # of its own, as its quotas hold for everybody
        run_snippets(DOCS / "security.md", 1, broker.address)


# What the constructor takes as a word and keeps otherwise, or says in words.
IN_WORDS = {
    "acks": '"all"',
    "compression": '"none"',
    "assignors": 'all, `"cooperative-sticky"` first',
}


def default_of(name: str) -> str:
    if name in IN_WORDS:
        return IN_WORDS[name]
    kinds = ClientSettings, ProducerSettings, ConsumerSettings, GroupSettings, ShareSettings
    for settings in kinds:
        for field in fields(settings):
            if field.name == name:
                return repr(field.default).replace("'", '"')
    raise AssertionError(f"{name} has no default")


def test_the_guide_lists_every_option_with_its_default() -> None:
    rows = re.findall(r"^\| (\w[\w, ]*) \| `(\w+)` \| (.+?) \| ", GUIDE.read_text(), re.MULTILINE)
    listed = {name: (of, default.strip("`")) for of, name, default in rows}
    producers, consumers, members, sharers = (
        options.__annotations__.keys()
        for options in (ProducerOptions, ConsumerOptions, GroupOptions, ShareOptions)
    )
    assert listed.keys() == producers | consumers | members | sharers
    for name, (of, default) in listed.items():
        assert default == default_of(name).strip("`"), name
        assert ("member" in of) == (name in members), name
        assert ("producer" in of or of == "all") == (name in producers), name
        assert ("share" in of or of == "all") == (name in sharers), name
        assert ("consumer" in of or of == "all") == (name in consumers - members), name
