"""krafka's tests, out of its crate: a client in Rust with a protocol layer of its own.

It speaks the newest version of each request that it has in common with the broker.  Its tests
start a Kafka in a container; here that is the address of the daemon.  Left out are those that log
in: three of them bring unsigned tokens.
"""

from pathlib import Path
from typing import Final

from ..support.daemon import running
from . import crate_suite
from .verdicts import Outcome

VERSION: Final = "0.28.1"
FILE: Final = "integration_tests"
# What starts the container, from its first line to that of what follows it.
STARTS: Final = (
    ("use testcontainers::", "/// Time to wait after topic creation"),
    ("// Custom Kafka image", "/// Helper to poll for records with retry."),
)
STARTED: Final = 'fn kafka() -> String { std::env::var("KAFKA_CONNECT").unwrap() }\n\n'
# Its lock file names 1.0.11, which not every mirror of crates.io has.
ROOTS: Final = ("webpki-roots", "1.0.10")
# Much to build, and nothing in this file uses them.
UNUSED: Final = ("criterion", "proptest", "rstest", "testcontainers")


def play(folder: Path, words: list[str]) -> dict[str, Outcome]:
    """Run the suite, or the tests whose names hold one of `words`.

    Args:
        folder: gets the source, the data of the daemon, and the output.
        words: parts of names; none for all.
    """
    source = folder / "source"
    crate_suite.fetch("krafka", VERSION, source, ROOTS)
    _without_container(source / "tests" / f"{FILE}.rs")
    _without_unused(source / "Cargo.toml")
    with running(folder / "data") as daemon:
        return crate_suite.play(
            source,
            [FILE],
            words,
            {"KAFKA_CONNECT": daemon.address},
            features=("zstd",),
            is_ignoring=False,
            output=folder / "output",
        )


def _without_container(file: Path) -> None:
    text = file.read_text()
    for first, after in STARTS:
        begin, end = text.index(first), text.index(after)
        text = text[:begin] + text[end:]
    _, after = STARTS[-1]
    file.write_text(text.replace(after, STARTED + after))


def _without_unused(manifest: Path) -> None:
    first, *sections = manifest.read_text().split("\n[")
    unused = tuple(f"dev-dependencies.{one}]" for one in UNUSED)
    kept = [one for one in sections if not one.startswith((*unused, "[bench]]"))]
    manifest.write_text("\n[".join([first, *kept]))
