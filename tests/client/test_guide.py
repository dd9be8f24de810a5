"""The guide's snippets run, against a real broker, in the order in which they stand."""

import re
from pathlib import Path

from ..support.daemon import Daemon

GUIDE = Path(__file__).parents[2] / "docs" / "client.md"


def test_the_snippets_of_the_guide_run(daemon: Daemon) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(snippets) == 7
    for snippet in snippets:
        code = snippet.replace("127.0.0.1:9092", daemon.address)
        exec(compile(code, str(GUIDE), "exec"), {"__name__": "guide"})
