"""The README's commands and snippets run, in the order in which they stand; Spark's have their own
tests, and `make` is what runs this."""

import os
import re
import subprocess
import sys
from pathlib import Path

from ..support.daemon import Daemon

README = Path(__file__).parents[2] / "README.md"
TEXT = README.read_text()


def blocks(language: str, section: str) -> list[str]:
    """The code blocks of a language in a section of the README."""
    body = TEXT.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", body, re.MULTILINE | re.DOTALL)


def test_the_commands_and_then_the_snippets_of_the_readme_run(daemon: Daemon) -> None:
    (commands,) = blocks("sh", "Try it in a minute")
    lines = [
        line
        for line in commands.replace("127.0.0.1:9092", daemon.address).splitlines()
        if not re.search(r"bin/(pip|activate)| serve ", line)  # the fixture did that
    ]
    assert len(lines) == 4
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "SEGBROKER_BOOTSTRAP": daemon.address}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 'alice {"page": "/"}' in done.stdout

    snippets = [*blocks("python", "From Python"), *blocks("python", "From confluent-kafka")]
    assert len(snippets) == 3
    names: dict[str, object] = {"__name__": "readme"}
    for snippet in snippets:
        exec(compile(snippet.replace("127.0.0.1:9092", daemon.address), str(README), "exec"), names)
