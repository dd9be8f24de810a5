"""Words of other tools, as one types them without thinking: which of ours is meant.

Only said, never taken: `rm` is near to `trim` for who compares letters, and both delete.
"""

from collections.abc import Collection, Mapping
from typing import Final

_COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ls": ("list",),
    "rm": ("delete", "remove"),
    "del": ("delete", "remove"),
    "delete": ("remove",),
    "remove": ("delete",),
    "new": ("create", "add"),
    "create": ("add", "set", "topic create"),
    "add": ("create", "set"),
    "grant": ("add", "acl add"),
    "purge": ("trim", "topic trim"),
    "truncate": ("trim", "topic trim"),
    "lag": ("describe", "group list --long"),
    "offsets": ("describe", "group list --long"),
    "show": ("describe", "list"),
    "reset": ("seek",),
    "reset-offsets": ("seek",),
    "set": ("alter",),
    "config": ("alter", "broker describe"),
    "status": ("describe", "broker status"),
    "list": ("topic list",),
    "topics": ("topic",),
    "consumer-groups": ("group",),
    "start": ("serve",),
    "server": ("serve",),
    "acls": ("acl",),
    "info": ("broker status",),
    "ping": ("broker status",),
    "health": ("status", "broker status"),
    "metadata": ("broker status",),
    "configs": ("broker describe",),
    "cluster": ("broker status",),
    "describe": ("topic describe",),
    "help": ("--help",),
}
"""The first that there is; those of two words, and options, are there anywhere."""

_OPTIONS: Final[Mapping[str, str]] = {
    "--bootstrap-server": "-b HOST:PORT",
    "--broker-list": "-b HOST:PORT",
    "--brokers": "-b HOST:PORT",
    "--port": "--listen HOST:PORT of serve, -b HOST:PORT of the others",
    "--topic": "the topic is named without an option",
    "--replication-factor": "there is one broker, and one replica",
    "--replicas": "there is one broker, and one replica",
    "--add-config": "-c KEY=VALUE",
    "--delete-config": "--unset KEY",
    "--force": "--yes does not ask",
    "--file": "segbroker produce TOPIC < FILE",
    "--compression": "-z CODEC",
    "--compression-codec": "-z CODEC",
    "--compression-type": "-z CODEC",
    "--output": "-J prints JSON lines, -f FORMAT what one likes",
    "--from": "-o WHERE",
    "--from-beginning": "-o start, which is the default",
    "--max-messages": "-n N",
    "-c": "-n N ends consume after N records",
    "--allow-principal": "--principal User:NAME",
    "--deny-principal": "--principal User:NAME --deny",
    "--property": "-f FORMAT or -J of consume, -K DELIM of produce",
    "--key": "-K DELIM splits each line into key and value",
    "--timeout-ms": "-e of consume ends at the end",
    "--host": "--listen HOST:PORT of serve, -b HOST:PORT of the others",
    "--create": "create is a command: segbroker topic create NAME",
    "--list": "list is a command: segbroker topic list",
    "--describe": "describe is a command: segbroker topic describe NAME",
    "--delete": "delete is a command: segbroker topic delete NAME",
    "-t": "the topic is named without an option",
    "-C": "segbroker consume TOPIC",
    "-P": "segbroker produce TOPIC",
    "-L": "segbroker topic list --long",
    "-k": "-K DELIM splits each line into key and value",
    "--command-config": "-X KEY=VALUE, or a context",
    "--producer.config": "-X KEY=VALUE, or a context",
    "--consumer.config": "-X KEY=VALUE, or a context",
}


def command_meant(word: str, known: Collection[str]) -> str | None:
    """Which of our commands a word of another tool may mean."""
    meant = _COMMANDS.get(word, ())
    everywhere = (one for one in meant if " " in one or one.startswith("-"))
    return next((one for one in meant if one in known), None) or next(everywhere, None)


def option_meant(name: str) -> str | None:
    """What is said here in place of an option of another tool."""
    return _OPTIONS.get(name)
