"""Random access rules and quotas beside a model: `python -m tests.soak.access --seconds 600`.

A broker in memory, an administrator who adds and removes rules and quotas over the wire, two peers
told apart by their addresses who then ask for things; the broker is started anew now and then.  The
model is a list of rules, asked one by one as Kafka's documentation says, and a table of quotas; it
shares no line with the broker.  What must hold:

- a request is refused exactly when the model says so, from the answer to the change on
- the rules and quotas that are listed are those of the model, also after a restart
- the quota of a client is that of the most particular entity that has one

One line per life of a broker; the first difference ends it, with its seed.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

import structlog
import trio

from segbroker.broker.access.quota_rules import KEYS_OF_CLIENTS, find
from segbroker.broker.server import Broker
from segbroker.protocol import messages_admin as admin
from segbroker.protocol import messages_core as core
from segbroker.protocol import messages_groups as groups
from segbroker.protocol import messages_security as security
from segbroker.protocol.acls import Operation, PatternType, Permission, ResourceType
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.acls import Acl

from ..broker.conftest import serving
from ..broker.guarded import allow, connect_from, rule
from ..broker.test_quotas import Parts, alter, describe
from ..support.wire_client import WireClient, batch, fetch_request, produce_request

ADMIN, PEERS = "127.0.0.9", ("127.0.0.1", "127.0.0.2")
TOPICS = ("a", "ab", "abc", "b", "*x")
GROUPS = ("g", "gh")
NAMES = {ResourceType.TOPIC: (*TOPICS, "*"), ResourceType.GROUP: (*GROUPS, "*")}
OPERATIONS = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.ALL),
}  # fmt: skip
IMPLY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
REFUSED = {29, 30}
STEPS_OF_LIFE = 120
QUESTIONS = 4


class Difference(AssertionError):
    """The broker and the model do not agree."""


@dataclass
class Model:
    """What should be."""

    rules: list[Acl] = field(default_factory=list)
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = field(default_factory=dict)

    def may(self, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        about = [
            one
            for one in self.rules
            if one.resource_type == kind
            and one.principal in ("User:ANONYMOUS", "User:*")
            and one.host in (host, "*")
            and (
                name.startswith(one.resource_name)
                if one.pattern_type == PatternType.PREFIXED
                else one.resource_name in (name, "*")
            )
        ]
        if any(
            one.permission == Permission.DENY and one.operation in (operation, Operation.ALL)
            for one in about
        ):
            return False
        enough = (operation, Operation.ALL, *IMPLY.get(operation, ()))
        return any(one.permission == Permission.ALLOW and one.operation in enough for one in about)

    def quota(self, key: str, user: str, client_id: str) -> float | None:
        """Kafka's order: user before client id, a name before the default."""
        for parts in (
            {"user": user, "client-id": client_id}, {"user": user, "client-id": None},
            {"user": user}, {"user": None, "client-id": client_id},
            {"user": None, "client-id": None}, {"user": None},
            {"client-id": client_id}, {"client-id": None},
        ):  # fmt: skip
            values = self.quotas.get(tuple(sorted(parts.items())), {})
            if key in values:
                return values[key]
        return None


def random_rule(random: Random) -> Acl:
    kind = random.choice(list(NAMES))
    name = random.choice(NAMES[kind])
    prefixed = name != "*" and random.random() < 0.4
    return rule(
        random.choice(OPERATIONS[kind]),
        kind,
        name,
        host=random.choice((*PEERS, "*")),
        principal=random.choice(("User:ANONYMOUS", "User:*", "User:alice")),
        pattern=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        permission=Permission.DENY if random.random() < 0.3 else Permission.ALLOW,
    )


async def change_rules(client: WireClient, model: Model, random: Random) -> None:
    if model.rules and random.random() < 0.45:
        gone = random.choice(model.rules)
        request = security.DeleteAclsRequest(
            filters=[
                security.DeleteAclsRequestFilter(
                    resource_type_filter=gone.resource_type,
                    resource_name_filter=gone.resource_name,
                    pattern_type_filter=gone.pattern_type,
                    principal_filter=gone.principal,
                    host_filter=gone.host,
                    operation=gone.operation,
                    permission_type=gone.permission,
                )
            ]
        )
        reply = await client.ask(request, security.DeleteAclsResponse, 3)
        if [len(row.matching_acls) for row in reply.filter_results] != [1]:
            raise Difference(f"{gone} was not removed once")
        model.rules.remove(gone)
        return
    new = random_rule(random)
    made = security.CreateAclsRequest(
        creations=[
            security.CreateAclsRequestCreation(
                resource_type=new.resource_type,
                resource_name=new.resource_name,
                resource_pattern_type=new.pattern_type,
                principal=new.principal,
                host=new.host,
                operation=new.operation,
                permission_type=new.permission,
            )
        ]
    )
    answer = await client.ask(made, security.CreateAclsResponse, 3)
    if [row.error_code for row in answer.results] != [0]:
        raise Difference(f"{new} was not taken: {answer}")
    if new not in model.rules:
        model.rules.append(new)


async def change_quotas(client: WireClient, model: Model, random: Random) -> None:
    parts: Parts = {}
    for kind, names in (("user", ("u", "v", None)), ("client-id", ("c", "d", None))):
        if random.random() < 0.6:
            parts[kind] = random.choice(names)
    if not parts:
        return
    key = random.choice(sorted(KEYS_OF_CLIENTS))
    value = None if random.random() < 0.4 else float(random.randrange(10**6, 10**9))
    if await alter(client, parts, **{key: value}):
        raise Difference(f"{key}={value} of {parts} was refused")
    entity = tuple(sorted(parts.items()))
    values = model.quotas.setdefault(entity, {})
    values.pop(key, None)
    if value is not None:
        values[key] = value
    if not values:
        del model.quotas[entity]


async def compare_quotas(client: WireClient, broker: Broker, model: Model, random: Random) -> None:
    listed = {tuple(sorted(parts)): values for parts, values in (await describe(client)).items()}
    if listed != model.quotas:
        raise Difference(f"quotas {listed}, should be {model.quotas}")
    key = random.choice(sorted(KEYS_OF_CLIENTS))
    user, client_id = random.choice("uvw"), random.choice("cde")
    found = find(broker.core.all_quotas.rows, key, user, client_id)
    expected = model.quota(key, user, client_id)
    if (None if found is None else found.rate) != expected:
        raise Difference(f"{key} of {user}, {client_id} is {found}, should be {expected}")


async def ask(client: WireClient, operation: Operation, name: str) -> int:
    """The code that a request gets which needs `operation` on a topic."""
    match operation:
        case Operation.WRITE:
            request = produce_request(name, batch(b"v"))
            reply = await client.ask(request, core.ProduceResponse, 9)
            return reply.responses[0].partition_responses[0].error_code
        case Operation.READ:
            fetched = await client.ask(fetch_request(name, 0), core.FetchResponse, 12)
            return fetched.responses[0].partitions[0].error_code
        case Operation.DESCRIBE:
            asked = core.MetadataRequest(
                topics=[core.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
            )
            described = await client.ask(asked, core.MetadataResponse, 9)
            return described.topics[0].error_code
        case Operation.DESCRIBE_CONFIGS:
            wanted = admin.DescribeConfigsRequest(
                resources=[
                    admin.DescribeConfigsRequestResource(
                        resource_type=2, resource_name=name, configuration_keys=["retention.ms"]
                    )
                ]
            )
            settings = await client.ask(wanted, admin.DescribeConfigsResponse, 4)
            return settings.results[0].error_code
        case _:
            change = admin.IncrementalAlterConfigsRequest(
                resources=[
                    admin.IncrementalAlterConfigsRequestResource(
                        resource_type=2,
                        resource_name=name,
                        configs=[
                            admin.IncrementalAlterConfigsRequestConfig(
                                name="retention.ms", config_operation=0, value="5"
                            )
                        ],
                    )
                ],
                validate_only=True,
            )
            altered = await client.ask(change, admin.IncrementalAlterConfigsResponse, 1)
            return altered.responses[0].error_code


ASKED = (
    Operation.WRITE, Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)  # fmt: skip


async def question(client: WireClient, host: str, model: Model, random: Random) -> None:
    if random.random() < 0.2:
        kind, name, operation = ResourceType.GROUP, random.choice(GROUPS), Operation.READ
        beat = groups.HeartbeatRequest(group_id=name, generation_id=0, member_id="m")
        code = (await client.ask(beat, groups.HeartbeatResponse, 3)).error_code
    else:
        kind, name, operation = ResourceType.TOPIC, random.choice(TOPICS[:4]), random.choice(ASKED)
        code = await ask(client, operation, name)
    if (code not in REFUSED) != model.may(host, operation, kind, name):
        raise Difference(
            f"{operation.name} {kind.name} {name!r} from {host}: code {code}; {model.rules}"
        )


async def life(disk: MemoryStorage, model: Model, random: Random, steps: int) -> None:
    """One broker, from its start to its end."""
    async with (
        serving(storage=disk, authorizer="acl", audit_lines_max=0) as broker,
        connect_from(ADMIN, broker) as administrator,
        connect_from(PEERS[0], broker) as one,
        connect_from(PEERS[1], broker) as two,
    ):
        topics = broker.core.topics
        for name in TOPICS[:4]:
            if topics.get(name) is None:
                await topics.create(name, 1, topics.topic_config({}))
        if not model.rules:
            of_admin = rule(Operation.ALL, ResourceType.CLUSTER, "kafka-cluster", host=ADMIN)
            await allow(broker, of_admin)
            model.rules.append(of_admin)
        for _ in range(steps):
            keep = model.rules[:1]  # the administrator's own
            rest = Model(model.rules[1:], model.quotas)
            await change_rules(administrator, rest, random)
            model.rules = [*keep, *rest.rules]
            await change_quotas(administrator, model, random)
            await compare_quotas(administrator, broker, model, random)
            for _ in range(QUESTIONS):
                host, client = random.choice(((PEERS[0], one), (PEERS[1], two)))
                await question(client, host, model, random)
        assert broker.core.authorizer is not None
        if set(broker.core.authorizer.rules.acls) != set(model.rules):
            raise Difference("other rules are in force than were made")


async def play(seed: int, is_over: Callable[[int], bool], told: Callable[[str], None]) -> None:
    """Lives on one disk, until `is_over(lives so far)`."""
    random, disk, model = Random(seed), MemoryStorage(), Model()
    for lives in count():
        if is_over(lives):
            return
        await life(disk, model, random, STEPS_OF_LIFE)
        told(f"seed {seed}, life {lives}: {len(model.rules)} rules, {len(model.quotas)} quotas")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.access", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    ends_s = time.monotonic() + options.seconds
    for seed in count(options.seed):
        if time.monotonic() > ends_s:
            return 0
        try:
            trio.run(
                play,
                seed,
                lambda lives: lives >= 5 or time.monotonic() > ends_s,
                lambda line: print(line, flush=True),
            )
        except BaseException:
            print(f"repeat: python -m tests.soak.access --seed {seed}", flush=True)
            raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
