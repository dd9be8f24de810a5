"""The guide's snippets run, against a real broker, in the order in which they stand."""

import re
from dataclasses import fields
from pathlib import Path

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

from ..support.daemon import Daemon

GUIDE = Path(__file__).parents[2] / "docs" / "client.md"


def test_the_snippets_of_the_guide_run(daemon: Daemon) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(snippets) == 8
    for snippet in snippets:
        code = snippet.replace("127.0.0.1:9092", daemon.address)
        exec(compile(code, str(GUIDE), "exec"), {"__name__": "guide"})


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
