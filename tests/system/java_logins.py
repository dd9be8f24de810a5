"""Logins by token of Java's kafka-clients: tasks of KafkaClientsLogins, all in one JVM."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ..support import kafka_program
from ..support.java import compiled, java

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
RUN_S: Final = 200.0


class Login(NamedTuple):
    """A task, what it is called in the answer, and the settings of its client."""

    name: str
    task: str
    settings: Mapping[str, str]


def settings(address: str, tokens: str, client: str, secret: str, more: str = "") -> dict[str, str]:
    """What a client is told that asks `tokens`, a URL, for its tokens; renewed at the last moment.

    more: further options of the login module.
    """
    module = f"{_PACKAGE}.OAuthBearerLoginModule"
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": tokens,
        "sasl.login.refresh.min.period.seconds": "1",
        "sasl.login.refresh.buffer.seconds": "0",
        "sasl.jaas.config": f'{module} required clientId="{client}" clientSecret="{secret}"{more};',
    }


def said(logins: Sequence[Login], urls: Sequence[str], folder: Path, cache: Path) -> dict[str, str]:
    """What each task ended with, by name: `ok`, or the class and the message of an exception.

    urls: all that may be asked for tokens; Java refuses others.
    """
    plan = folder / "java.tsv"
    plan.write_text(
        "".join(
            "\t".join([name, task, *(f"{key}={value}" for key, value in chosen.items())]) + "\n"
            for name, task, chosen in logins
        )
    )
    # kafka-clients wants more jars for this than for anything else: all of Apache Kafka's.
    source = kafka_program.CLIENTS / "KafkaClientsLogins.java"
    path = compiled([source], kafka_program.jars(cache), cache)
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(urls)}"
    command = [java(), allowed, "-cp", path, "KafkaClientsLogins", str(plan)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
    assert run.returncode == 0, run.stderr
    return dict(line.split("\t", 1) for line in run.stdout.splitlines())
