"""samsa's tests, out of its crate: a client in Rust with a protocol layer of its own.

It speaks one version of each request, the oldest or nearly the oldest that Kafka 4 serves.  Left
out are the tests of another broker's administration; and two that carry a million records each,
without optimisation, are run with `--full` only.
"""

from pathlib import Path
from typing import Final

from ..support.daemon import running
from . import crate_suite
from .verdicts import Outcome

VERSION: Final = "0.1.8"
FILES: Final = (
    "compression_setup",
    "consumer_builder",
    "consumer_group_builder",
    "create_delete_topic",
    "group",
    "metadata",
    "multi_partitions_setup",
    "offset",
    "produce_fetch",
)
LONG: Final = (
    "write_and_read_1m_messages",
    "write_and_read_1m_messages_with_multi_partitions_and_compression",
)
# Of a broker on this machine, as some tests have it.
PORT: Final = "port: 9092"


def play(folder: Path, words: list[str], *, is_quick: bool) -> dict[str, Outcome]:
    """Run the suite, or the tests whose names hold one of `words`.

    Args:
        folder: gets the source, the data of the daemon, and the output.
        words: parts of names; none for all.
        is_quick: without those of a million records.
    """
    source = folder / "source"
    crate_suite.fetch("samsa", VERSION, source, crate_suite.RSASL)
    files = FILES if is_quick else (*FILES, *LONG)
    texts = {file: file.read_text() for file in (source / "tests").glob("*.rs")}
    assert any(PORT in text for text in texts.values()), "the tests are not as they were"
    with running(folder / "data") as daemon:
        _, port = daemon.host_and_port
        for file, text in texts.items():
            file.write_text(text.replace(PORT, f"port: {port}"))
        environment = {"KAFKA_BROKERS": daemon.address}
        return crate_suite.play(source, files, words, environment, output=folder / "output")
