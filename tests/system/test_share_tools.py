"""Kafka's command-line tools for share groups: kafka-share-groups, kafka-console-share-consumer and
their neighbours.

They run one after another on one broker, and what one leaves behind the next finds.  With
SEGBROKER_TEST_BOOTSTRAP=HOST:PORT that is another broker, on which the topic `shared` is new.
"""

from pathlib import Path
from typing import Final

import pytest

from ..peers import kafka_tools
from .kafka_tool_runs import TOOLS, Command, Outcome, check, run

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

GROUPS: Final = TOOLS + "consumer.group.ShareGroupCommand"
CONSUMER: Final = TOOLS + "consumer.ConsoleShareConsumer"
CONFIGS: Final = "kafka.admin.ConfigCommand"
EARLIEST: Final = "--add-config share.auto.offset.reset=earliest"
READS: Final = "--topic shared --group sg --timeout-ms 20000"
RESET: Final = "--reset-offsets --group sg --topic shared"
COMMANDS: Final = (
    Command(TOOLS + "TopicCommand", "--create --topic shared --partitions 1", "Created topic"),
    Command(TOOLS + "ConsoleProducer", "--topic shared --compression-codec zstd", reads="lines"),
    Command(CONFIGS, f"--alter --group sg {EARLIEST}", "Completed"),
    Command(CONFIGS, "--describe --group sg", "share.auto.offset.reset=earliest"),
    Command(CONSUMER, f"{READS} --max-messages 5", "Processed a total of 5 messages"),
    Command(CONSUMER, f"{READS} --max-messages 3 --reject", "Processed a total of 3 messages"),
    Command(CONSUMER, f"{READS} --max-messages 2 --release", "Processed a total of 2 messages"),
    Command(GROUPS, "--list", "sg"),
    Command(GROUPS, "--list --state", "Empty"),
    Command(GROUPS, "--describe --group sg", "shared"),
    Command(GROUPS, "--describe --group sg --offsets --verbose", "LEADER-EPOCH"),
    Command(GROUPS, "--describe --group sg --members", "has no active members"),
    Command(GROUPS, "--describe --group sg --state", "Empty"),
    Command(GROUPS, "--describe --group nobody", "Group nobody not found."),
    Command(GROUPS, f"{RESET} --to-latest --dry-run", "shared"),
    Command(GROUPS, f"{RESET} --to-datetime 2020-01-01T00:00:00.000 --execute", "shared"),
    Command(GROUPS, f"{RESET} --to-earliest --execute", "shared"),
    Command(CONSUMER, f"{READS} --max-messages 20", "Processed a total of 20 messages"),
    Command(TOOLS + "GroupsCommand", "--list --share", "sg"),
    Command(GROUPS, "--delete-offsets --group sg --topic shared", "Successful"),
    Command(GROUPS, "--delete --group sg", "successful"),
    Command(GROUPS, "--delete --group sg", "is not a share group"),
    Command(
        TOOLS + "VerifiableShareConsumer",
        "--topic shared --group-id vg --max-messages 20 --offset-reset-strategy earliest",
        "offsets_acknowledged",
    ),
    Command(CONFIGS, f"--alter --group pg {EARLIEST}", "Completed"),
    Command(
        TOOLS + "ShareConsumerPerformance",
        "--topic shared --group pg --num-records 10 --timeout 20000",
        "data.consumed.in.MB",
    ),
)


@pytest.fixture(scope="module")
def outcomes(
    bootstrap: str, tmp_path_factory: pytest.TempPathFactory, release_cache: Path
) -> list[Outcome]:
    folder: Path = tmp_path_factory.mktemp("share-tools")
    (folder / "lines").write_text("".join(f"v{n}\n" for n in range(20)))
    return run(COMMANDS, bootstrap, folder, release_cache, kafka_tools.SHARES)


@pytest.mark.parametrize("n", range(len(COMMANDS)))
def test_a_tool_of_share_groups_does_its_work(n: int, outcomes: list[Outcome]) -> None:
    check(COMMANDS[n], outcomes[n])
