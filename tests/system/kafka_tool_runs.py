"""Kafka's command-line tools, one after another in one virtual machine (ToolRunner.java)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..peers import kafka_tools
from ..support.java import compiled
from ..support.kafka_program import CLIENTS, jars, program

RUNNER: Final = CLIENTS / "ToolRunner.java"
HANGS_AFTER_S: Final = 120
TOOLS: Final = "org.apache.kafka.tools."
# These take the address of the broker among their arguments, or by another name.
OWN_ADDRESS: Final = ("ClusterTool", "EndToEndLatency", "ProducerPerformance")


@dataclass(frozen=True)
class Command:
    """One call of a tool, and what is to come of it.

    Attributes:
        tool: its class.
        arguments: with blanks between; {folder} is the test's, and --bootstrap-server is added.
        says: what its output has, or the file that it was to make.
        code: exit code.
        reads: standard input, by the name of a file in the folder.
    """

    tool: str
    arguments: str
    says: str = ""
    code: int = 0
    reads: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its code or "hangs", and what it printed."""

    code: str
    text: str


def run(
    commands: Sequence[Command],
    address: str,
    folder: Path,
    cache: Path,
    version: str = kafka_tools.VERSION,
) -> list[Outcome]:
    """How each command ended.

    Args:
        address: of the broker.
        folder: gets what they print.
        cache: outlives the run.
        version: of the tools.
    """
    path = compiled([RUNNER], jars(cache, version), cache)
    lines = []
    for n, command in enumerate(commands):
        arguments = command.arguments.format(folder=folder, address=address).split()
        if not command.tool.endswith(OWN_ADDRESS):
            arguments = ["--bootstrap-server", address, *arguments]
        reads = str(folder / command.reads) if command.reads else ""
        lines.append("\t".join([str(n), reads, command.tool, *arguments]))
    (folder / "commands").write_text("\n".join(lines))
    (folder / "printed").mkdir()
    arguments = [str(folder / "commands"), str(folder / "printed"), str(HANGS_AFTER_S)]
    with program(path, RUNNER.stem, arguments, folder / "log") as tools:
        # A tool's own deadline ends it long before: this is for a machine that stands still.
        assert tools.wait(1_500) == 0, tools.state()
        codes = [line.split()[2] for line in tools.lines if line.startswith("ran ")]
    assert len(codes) == len(commands), tools.lines[-1:]
    return [
        Outcome(code, (folder / "printed" / str(n)).read_text()) for n, code in enumerate(codes)
    ]


def check(command: Command, outcome: Outcome) -> None:
    """Fail unless it ended as it is to."""
    assert (outcome.code, command.says in outcome.text) == (str(command.code), True), (
        f"{command.tool} {command.arguments}: {outcome.code}\n{outcome.text[-2_000:]}"
    )
