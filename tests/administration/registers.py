"""Names with values: settings of the broker and of groups, quotas, access rules, users.

Each is changed by parts and, where the protocol can, as a whole; what is told of it is what is in
force.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, TypeAlias

from segbroker.broker.configuration.config_key import text_of
from segbroker.protocol import messages_admin as admin
from segbroker.protocol import messages_quotas as quotas
from segbroker.protocol import messages_security as security
from segbroker.protocol.acls import Operation, PatternType, Permission, ResourceType
from segbroker.protocol.errors import ErrorCode

from ..simulation.process import Process
from ..support.wire_client import WireClient
from ..support.wire_settings import BROKER, DELETE_KEY, GROUP, SET_KEY
from .belief import Change, Difference
from .subject import Lives, Subject

Values: TypeAlias = tuple[tuple[str, str], ...]
"""Sorted by name."""
Parts: TypeAlias = Mapping[str, str | None]
"""None takes one away."""

OWN: Final = "1"
EVERY: Final = ""
SOURCES: Final = {OWN: 2, EVERY: 3}
OF_GROUP: Final = 8
BROKER_VALUES: Final = {
    "cleaner_backoff_ms": ("50", "5000"),
    "log_segment_bytes": ("4096", "65536"),
    "message_max_bytes": ("2000", "60000"),
    "compression_type": ("producer", "zstd", "uncompressed"),
    "log_roll_ms": ("300", "100000"),
    "housekeeping_interval_ms": ("50", "500"),
    "open_files_max": ("16", "100"),
    "slots_max": ("4", "1000"),
    "group_consumer_heartbeat_interval_ms": ("500", "1000"),
}
GROUP_VALUES: Final = {
    "consumer.session.timeout.ms": ("45000", "60000"),
    "consumer.heartbeat.interval.ms": ("3000", "5000"),
    "share.record.lock.duration.ms": ("15000", "60000"),
    "share.auto.offset.reset": ("earliest", "latest"),
}
QUOTA_VALUES: Final = {
    "producer_byte_rate": ("1.0", "100000000.0"),
    "consumer_byte_rate": ("5000.0", "100000000.0"),
    "request_percentage": ("5.0", "500.0"),
}
RULES: Final = {f"User:{name} {operation}": ("",) for name in "abc" for operation in (3, 4, 8)}
USER_VALUES: Final = {"1": ("4096", "8192"), "2": ("4096", "5000")}
"""Iterations by mechanism."""


class Put(Change[Values]):
    """Some of the values, or all of them as a whole."""

    may_hold = True

    def __init__(self, register: "Register", parts: Parts, *, whole: bool) -> None:
        super().__init__()
        self.register = register
        self.parts = parts
        self.whole = whole

    def __str__(self) -> str:
        return f"{'all' if self.whole else 'some'} {self.parts}"

    def outcomes(self, state: Values) -> Sequence[tuple[Values, int]]:
        return self.register.outcomes(state, self)

    async def ask(self, client: WireClient) -> int:
        return await self.register.put(client, self)


class Register(Subject[Values]):
    """See the module."""

    values: Mapping[str, Sequence[str]]
    has_whole = False

    def __init__(self, name: str, lives: Lives, clients: int) -> None:
        super().__init__(name, (), lives, clients)

    def draw(self, random: Random) -> Put:
        names = random.sample(sorted(self.values), random.randint(1, min(3, len(self.values))))
        whole = self.has_whole and random.random() < 0.2
        parts: Parts = {
            name: None if not whole and random.random() < 0.4 else random.choice(self.values[name])
            for name in names
        }
        return Put(self, parts, whole=whole)

    def outcomes(self, state: Values, put: Put) -> Sequence[tuple[Values, int]]:
        """What one change may make of these; by default whatever is asked for can be."""
        return [(changed(state, put), 0)]

    @abstractmethod
    async def put(self, client: WireClient, put: Put) -> int:
        """Ask for a change; the code of the answer."""

    @abstractmethod
    async def told(self, client: WireClient) -> Mapping[str, str]:
        """What the broker says."""

    def check(self, process: Process, seen: Values) -> None:
        """Whether what is told is in force.  Raises Difference."""

    async def look(self, process: Process, client: WireClient) -> None:
        seen = tuple(sorted((await self.told(client)).items()))
        self.belief.seen(lambda state: state if state == seen else None, seen)
        self.check(process, seen)


def changed(state: Values, put: Put) -> Values:
    found = {} if put.whole else dict(state)
    for name, value in put.parts.items():
        found.pop(name, None)
        if value is not None:
            found[name] = value
    return tuple(sorted(found.items()))


class Settings(Register):
    """Of the broker, of every broker, or of a group."""

    has_whole = True

    def __init__(self, kind: int, resource: str, source: int, lives: Lives, clients: int) -> None:
        self.values = GROUP_VALUES if kind == GROUP else BROKER_VALUES
        super().__init__(f"settings {kind} {resource!r}", lives, clients)
        self.kind = kind
        self.resource = resource
        self.source = source

    def outcomes(self, state: Values, put: Put) -> Sequence[tuple[Values, int]]:
        # Values that do not go together, with those of the other resource or the defaults.
        refused = ErrorCode.INVALID_CONFIG if self.kind == GROUP else ErrorCode.INVALID_REQUEST
        return [(changed(state, put), 0), (state, refused)]

    def heard(self, changes: list[Change[Values]]) -> None:
        if self.kind == BROKER and any(change.is_in_doubt for change in changes):
            self.lives.lag()

    async def put(self, client: WireClient, put: Put) -> int:
        if put.whole:
            all_of_it = admin.AlterConfigsRequestResource(
                resource_type=self.kind,
                resource_name=self.resource,
                configs=[
                    admin.AlterConfigsRequestConfig(name=name, value=value)
                    for name, value in put.parts.items()
                ],
            )
            replacing = admin.AlterConfigsRequest(resources=[all_of_it], validate_only=False)
            (row,) = (await client.ask(replacing, admin.AlterConfigsResponse, 2)).responses
            return row.error_code
        some = admin.IncrementalAlterConfigsRequestResource(
            resource_type=self.kind,
            resource_name=self.resource,
            configs=[
                admin.IncrementalAlterConfigsRequestConfig(
                    name=name,
                    config_operation=DELETE_KEY if value is None else SET_KEY,
                    value=value,
                )
                for name, value in put.parts.items()
            ],
        )
        request = admin.IncrementalAlterConfigsRequest(resources=[some], validate_only=False)
        (row,) = (await client.ask(request, admin.IncrementalAlterConfigsResponse, 1)).responses
        return row.error_code

    async def told(self, client: WireClient) -> Mapping[str, str]:
        wanted = admin.DescribeConfigsRequestResource(
            resource_type=self.kind, resource_name=self.resource, configuration_keys=None
        )
        request = admin.DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
        (row,) = (await client.ask(request, admin.DescribeConfigsResponse, 4)).results
        if row.error_code:
            raise Difference(f"{self.name}: {row.error_code} {row.error_message}")
        return {
            one.name: synonym.value or ""
            for one in row.configs
            for synonym in one.synonyms
            if synonym.source == self.source and one.name in self.values
        }

    def check(self, process: Process, seen: Values) -> None:
        core = process.broker.core
        if self.kind == GROUP:
            if tuple(sorted(core.group_settings.set_on(self.resource).items())) != seen:
                raise Difference(f"other settings are in force of {self.name} than {seen}")
            return
        of_topics = process.manager.topic_defaults
        if self.lives.is_calm and of_topics != core.config.topic_defaults:
            raise Difference(f"{of_topics} are of topics, {core.config.topic_defaults} are told")
        for name in self.values:
            layer = next(iter(core.settings.layers(name)))
            if text_of(core.config.value(name)) != layer.text:
                raise Difference(f"{name} is {core.config.value(name)}, {layer} is told")


class Quotas(Register):
    """Of one entity: the client id of who writes, or another."""

    values = QUOTA_VALUES

    def __init__(self, client_id: str, lives: Lives, clients: int) -> None:
        super().__init__(f"quotas of {client_id}", lives, clients)
        self.client_id = client_id

    async def put(self, client: WireClient, put: Put) -> int:
        entity = quotas.ClientQuotaEntity(entity_type="client-id", entity_name=self.client_id)
        entry = quotas.AlterClientQuotasRequestEntry(
            entity=[entity],
            ops=[
                quotas.AlterClientQuotasRequestOp(
                    key=name, value=float(value or 0), remove=value is None
                )
                for name, value in put.parts.items()
            ],
        )
        request = quotas.AlterClientQuotasRequest(entries=[entry], validate_only=False)
        (row,) = (await client.ask(request, quotas.AlterClientQuotasResponse, 1)).entries
        return row.error_code

    async def told(self, client: WireClient) -> Mapping[str, str]:
        component = quotas.DescribeClientQuotasRequestComponent(
            entity_type="client-id", match_type=0, match=self.client_id
        )
        request = quotas.DescribeClientQuotasRequest(components=[component], strict=True)
        reply = await client.ask(request, quotas.DescribeClientQuotasResponse, 1)
        return {one.key: str(one.value) for row in reply.entries or () for one in row.values}

    def check(self, process: Process, seen: Values) -> None:
        rows = process.broker.core.all_quotas.rows
        found = {
            key: str(value)
            for entity, values in rows.items()
            if dict(entity) == {"client-id": self.client_id}
            for key, value in values.items()
        }
        if tuple(sorted(found.items())) != seen:
            raise Difference(f"{found} is in force of {self.name}, {seen} is told")


class Rules(Register):
    """Access rules of a topic; a change adds one, or takes it away."""

    values = RULES

    def draw(self, random: Random) -> Put:
        name = random.choice(sorted(RULES))
        return Put(self, {name: random.choice(("", None))}, whole=False)

    async def put(self, client: WireClient, put: Put) -> int:
        ((name, value),) = put.parts.items()
        principal, operation = name.split()
        if value is None:
            rule = security.DeleteAclsRequestFilter(
                resource_type_filter=ResourceType.TOPIC,
                resource_name_filter="t0",
                pattern_type_filter=PatternType.LITERAL,
                principal_filter=principal,
                host_filter="*",
                operation=int(operation),
                permission_type=Permission.ALLOW,
            )
            gone = security.DeleteAclsRequest(filters=[rule])
            (found,) = (await client.ask(gone, security.DeleteAclsResponse, 3)).filter_results
            failed = [acl.error_code for acl in found.matching_acls if acl.error_code]
            return found.error_code or (failed[0] if failed else 0)
        made = security.CreateAclsRequestCreation(
            resource_type=ResourceType.TOPIC,
            resource_name="t0",
            resource_pattern_type=PatternType.LITERAL,
            principal=principal,
            host="*",
            operation=int(operation),
            permission_type=Permission.ALLOW,
        )
        request = security.CreateAclsRequest(creations=[made])
        (row,) = (await client.ask(request, security.CreateAclsResponse, 3)).results
        return row.error_code

    async def told(self, client: WireClient) -> Mapping[str, str]:
        request = security.DescribeAclsRequest(
            resource_type_filter=ResourceType.TOPIC,
            resource_name_filter="t0",
            pattern_type_filter=PatternType.LITERAL,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        reply = await client.ask(request, security.DescribeAclsResponse, 3)
        return {
            f"{acl.principal} {acl.operation}": "" for row in reply.resources for acl in row.acls
        }

    def check(self, process: Process, seen: Values) -> None:
        authorizer = process.broker.core.authorizer
        assert authorizer is not None, "the plan has one"
        found = sorted(f"{acl.principal} {acl.operation}" for acl in authorizer.rules.acls)
        if found != [name for name, _ in seen]:
            raise Difference(f"rules {found} are in force, {seen} are told")


class User(Register):
    """The credentials of one user, by mechanism."""

    values = USER_VALUES

    def __init__(self, user: str, lives: Lives, clients: int) -> None:
        super().__init__(f"user {user}", lives, clients)
        self.user = user

    def draw(self, random: Random) -> Put:
        put = super().draw(random)
        put.nothing_there = ErrorCode.RESOURCE_NOT_FOUND
        return put

    def outcomes(self, state: Values, put: Put) -> Sequence[tuple[Values, int]]:
        there = dict(state)
        if any(value is None and name not in there for name, value in put.parts.items()):
            return [(state, ErrorCode.RESOURCE_NOT_FOUND)]
        return [(changed(state, put), 0)]

    async def put(self, client: WireClient, put: Put) -> int:
        request = security.AlterUserScramCredentialsRequest(
            deletions=[
                security.AlterUserScramCredentialsRequestDeletion(
                    name=self.user, mechanism=int(name)
                )
                for name, value in put.parts.items()
                if value is None
            ],
            upsertions=[
                security.AlterUserScramCredentialsRequestUpsertion(
                    name=self.user,
                    mechanism=int(name),
                    iterations=int(value),
                    salt=b"salt" * 4,
                    salted_password=b"p" * (32 * int(name)),
                )
                for name, value in put.parts.items()
                if value is not None
            ],
        )
        reply = await client.ask(request, security.AlterUserScramCredentialsResponse, 0)
        (row,) = reply.results
        return row.error_code

    async def told(self, client: WireClient) -> Mapping[str, str]:
        name = security.DescribeUserScramCredentialsRequestUser(name=self.user)
        request = security.DescribeUserScramCredentialsRequest(users=[name])
        reply = await client.ask(request, security.DescribeUserScramCredentialsResponse, 0)
        (row,) = reply.results
        return {str(one.mechanism): str(one.iterations) for one in row.credential_infos}


def registers(lives: Lives, clients: int) -> list[Register]:
    """All that there are."""
    return [
        Settings(BROKER, OWN, SOURCES[OWN], lives, clients),
        Settings(BROKER, EVERY, SOURCES[EVERY], lives, clients),
        Settings(GROUP, "g", OF_GROUP, lives, clients),
        Quotas("writer", lives, clients),
        Quotas("other", lives, clients),
        Rules("rules", lives, clients),
        User("alice", lives, clients),
    ]
