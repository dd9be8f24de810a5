"""The blocking admin client: topics, their configuration, offsets.

    with Admin("127.0.0.1:9092") as admin:
        admin.create_topic("orders", partitions=4, config={"durability": "fsync"})
        admin.describe_topic("orders").config["durability"].value

Each method raises the broker's error (see errors), with the broker's own words where it has some,
and TimedOut or BrokerUnreachable after `api_timeout_ms`.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from random import Random
from typing import Any, Final, Unpack

from segbroker.protocol.scram import ITERATIONS_DEFAULT

from . import (
    acl_administration,
    administration,
    broker_administration,
    group_administration,
    group_settings,
    many_groups,
    quota_administration,
    share_offsets,
    user_administration,
)
from .acl_administration import Acl, AclFilter
from .administration import (
    ClusterDescription,
    PartitionDescription,
    Setting,
    TopicDescription,
)
from .broker_administration import BrokerSetting
from .cleaning import Cleaning, cleanings
from .engine import Engine
from .group_administration import GroupListing
from .group_descriptions import GroupDescription
from .group_offsets import CommittedOffset
from .group_settings import GroupSetting
from .partition_statistics import stored_records
from .quota_administration import Quota
from .records import ByPartition, OffsetAndTimestamp, TopicPartition
from .settings import DEFAULT_BOOTSTRAP, AdminOptions, admin_settings
from .share_offsets import ShareOffset
from .thread_driver import Blocking, ThreadDriver
from .user_administration import User

_EVERY_ACL: Final = AclFilter()


class Admin(Blocking):
    # What help() shows.
    __doc__ = f"{__doc__}\nAll times in milliseconds.\n"

    def __init__(
        self,
        bootstrap: str | Iterable[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[AdminOptions],
    ) -> None:
        """An admin client; nothing is opened before its `with` block.

        bootstrap: "host:port,...", brokers to begin with.
        security: TLS and login; see Security.
        request_timeout_ms: an unanswered request ends its connection; 30,000.
        connect_timeout_ms: how long entering the block waits for a broker; 10,000.
        accept_timeout_ms: ... while nobody accepts a connection; default: as long.
        api_timeout_ms: how long one call may take, retries included; one that asks about very
            many partitions, topics or groups: each piece of it; 60,000.
        client_id: what the broker calls this client in its logs and quotas.

        Raises ValueError for a value that cannot be used.
        """
        self._driver = ThreadDriver()
        self._engine = Engine(admin_settings(bootstrap, options), Random())

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        config: Mapping[str, Setting] | None = None,
        replication_factor: int = -1,
        validate_only: bool = False,
    ) -> None:
        """Create a topic.  -1 partitions: as many as the broker's default.

        Raises TopicAlreadyExists, InvalidTopic, InvalidPartitions, InvalidConfig ...
        """
        self._driver.call(
            administration.create_topic(
                self._engine,
                name,
                partitions=partitions,
                config=config or {},
                replication_factor=replication_factor,
                validate_only=validate_only,
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records.  Raises UnknownTopicOrPartition."""
        self._driver.call(administration.delete_topic(self._engine, name))

    def create_partitions(self, name: str, count: int) -> None:
        """Let a topic have `count` partitions; never fewer than now (InvalidPartitions)."""
        self._driver.call(administration.create_partitions(self._engine, name, count))

    def alter_topic_config(self, name: str, changes: Mapping[str, Setting | None]) -> None:
        """Set keys of a topic's configuration; None puts one back to its default."""
        self._driver.call(administration.alter_topic_config(self._engine, name, changes))

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        return self._driver.call(administration.list_topics(self._engine, internal=internal))

    def describe_topic(self, name: str) -> TopicDescription:
        """Partitions, leaders and the whole configuration.

        Needs DESCRIBE_CONFIGS on the topic, and DESCRIBE.  Raises UnknownTopicOrPartition,
        TopicAuthorizationFailed.
        """
        return self._driver.call(administration.describe_topic(self._engine, name))

    def describe_topics(
        self, names: Iterable[str], *, keys: Collection[str] | None = None
    ) -> dict[str, TopicDescription]:
        """As `describe_topic`, many by one question; with `keys` only these settings, without what
        they mean.  One that cannot be described is raised."""
        return self._driver.call(administration.describe_topics(self._engine, names, keys=keys))

    def partitions(self, name: str) -> tuple[PartitionDescription, ...]:
        """The partitions of a topic and their leaders; DESCRIBE on it is enough.  Raises
        UnknownTopicOrPartition, TopicAuthorizationFailed."""
        return self._driver.call(administration.partitions(self._engine, name))

    def delete_records(self, offsets: ByPartition[int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset (-1: all that can be read); the new log starts."""
        return self._driver.call(administration.delete_records(self._engine, offsets))

    def offsets(
        self,
        topic: str | Iterable[str],
        at: str | int | datetime = "end",
        *,
        only_served: bool = False,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Of each partition the "start", the "end", or the first record at a time (ms, datetime);
        of one topic, or of many by one question.

        A time later than every record gives offset -1.  A partition that is not served, for its
        disk failed, is left out with `only_served`.  Else raises LeaderNotAvailable, StorageFailed,
        PolicyViolation (it is damaged and on.corruption=refuse).
        """
        return self._driver.call(
            administration.offsets(self._engine, topic, at, only_served=only_served)
        )

    def cleanings(self, topic: str) -> dict[TopicPartition, Cleaning]:
        """How far the partitions of a compacted topic are cleaned; segbroker's own question."""
        return self._driver.call(cleanings(self._engine, topic))

    def stored_records(self, topic: str | Iterable[str]) -> dict[TopicPartition, int]:
        """How many records each partition holds, markers of transactions among them; a question of
        segbroker's own: nothing of another broker."""
        return self._driver.call(stored_records(self._engine, topic))

    def describe_cluster(self) -> ClusterDescription:
        """The brokers and which of them is the controller."""
        return self._driver.call(administration.describe_cluster(self._engine))

    def describe_broker(self, broker_id: int | None) -> dict[str, BrokerSetting]:
        """The settings of a broker; None: what is set for every one.  Raises InvalidRequest."""
        return self._driver.call(broker_administration.describe_broker(self._engine, broker_id))

    def broker_status(self, broker_id: int | None = None) -> dict[str, Any]:
        """How a segbroker is doing: its connections, log, write-ahead log, scrub, recovery.

        The members are those of SERVER_INFO in docs/protocol.md.  None: whichever broker is asked.
        Raises UnsupportedByBroker: it is another make.
        """
        return self._driver.call(broker_administration.broker_status(self._engine, broker_id))

    def alter_broker_config(
        self, changes: Mapping[str, Setting | None], *, broker_id: int | None = None
    ) -> None:
        """Set keys of the settings of a broker while it runs, or of every one; None unsets one.

        They are durable and in force when this returns.  Raises InvalidConfig: there is no such
        key, it is read at the start, or it has no such value.
        """
        self._driver.call(
            broker_administration.alter_broker_config(self._engine, changes, broker_id)
        )

    def list_groups(self) -> list[GroupListing]:
        """All groups, by name."""
        return self._driver.call(group_administration.list_groups(self._engine))

    def describe_group(self, group_id: str) -> GroupDescription:
        """State and members of a group; state "Dead" when there is none."""
        return self._driver.call(group_administration.describe_group(self._engine, group_id))

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """The same of many groups, by requests about a hundred of them."""
        return self._driver.call(many_groups.describe_groups(self._engine, group_ids))

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Where a group stands, by partition; empty for one that never committed."""
        return self._driver.call(group_administration.committed(self._engine, group_id))

    def committed_of(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """The same of many groups, by requests about a hundred of them."""
        return self._driver.call(many_groups.committed_of(self._engine, group_ids))

    def commit(self, group_id: str, offsets: ByPartition[int | CommittedOffset]) -> None:
        """Put a group without members somewhere.  Raises UnknownMemberId while it has some."""
        self._driver.call(group_administration.commit(self._engine, group_id, offsets))

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members.  Raises NonEmptyGroup, GroupIdNotFound."""
        self._driver.call(group_administration.delete_group(self._engine, group_id))

    def describe_group_config(self, group_id: str) -> dict[str, GroupSetting]:
        """All settings of a group, what holds and where it is set; the group need not be there."""
        return self._driver.call(group_settings.describe_group_config(self._engine, group_id))

    def alter_group_config(self, group_id: str, changes: Mapping[str, Setting | None]) -> None:
        """Set keys of the settings of a group; None has the broker's hold for it again.

        They are durable and in force when this returns.  Raises InvalidConfig: there is no such
        key, or it has no such value.
        """
        self._driver.call(group_settings.alter_group_config(self._engine, group_id, changes))

    def share_offsets(self, group_id: str) -> dict[TopicPartition, ShareOffset]:
        """Where a share group stands, and how far it is behind; empty for one that there is not."""
        return self._driver.call(share_offsets.share_offsets(self._engine, group_id))

    def share_offsets_of(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[TopicPartition, ShareOffset]]:
        """The same of many groups, by requests about a hundred of them."""
        return self._driver.call(many_groups.share_offsets_of(self._engine, group_ids))

    def alter_share_offsets(self, group_id: str, offsets: ByPartition[int]) -> None:
        """Put a share group without members somewhere; it need not be there yet.

        Raises NonEmptyGroup; GroupIdNotFound: it is a group of another kind.
        """
        self._driver.call(share_offsets.alter_share_offsets(self._engine, group_id, offsets))

    def delete_share_offsets(self, group_id: str, *topics: str) -> None:
        """Have a share group without members forget topics: they are new to it then.

        Raises NonEmptyGroup, GroupIdNotFound; UnknownTopicOrPartition: it stands nowhere in one.
        """
        self._driver.call(share_offsets.delete_share_offsets(self._engine, group_id, topics))

    def list_acls(self, which: AclFilter = _EVERY_ACL) -> list[Acl]:
        """The access rules that match.  Raises SecurityDisabled, ClusterAuthorizationFailed."""
        return self._driver.call(acl_administration.list_acls(self._engine, which))

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """Add access rules; they are durable and in force when this returns."""
        self._driver.call(acl_administration.create_acls(self._engine, acls))

    def delete_acls(self, which: AclFilter) -> list[Acl]:
        """Take away the access rules that match; they are returned."""
        return self._driver.call(acl_administration.delete_acls(self._engine, which))

    def list_users(self, names: Iterable[str] | None = None) -> list[User]:
        """The users of these names that there are; None: all."""
        asked = None if names is None else list(names)
        return self._driver.call(user_administration.list_users(self._engine, asked))

    def set_password(
        self, name: str, password: str, *, iterations: int = ITERATIONS_DEFAULT
    ) -> None:
        """Set the password of a user, who is made if need be; the password stays here.

        Raises ValueError for a name, password or iterations that cannot be.
        """
        self._driver.call(
            user_administration.set_password(self._engine, name, password, iterations)
        )

    def delete_user(self, name: str) -> None:
        """Delete a user.  Raises ResourceNotFound."""
        self._driver.call(user_administration.delete_user(self._engine, name))

    def list_quotas(self, entity: Mapping[str, str | None] | None = None) -> list[Quota]:
        """The quotas of entities with these parts: {"user": "alice"}; a None name: the default."""
        return self._driver.call(quota_administration.list_quotas(self._engine, entity or {}))

    def alter_quotas(
        self, entity: Mapping[str, str | None], changes: Mapping[str, float | None]
    ) -> None:
        """Set quotas of an entity: {"producer_byte_rate": 1e6}; None takes one away."""
        self._driver.call(quota_administration.alter_quotas(self._engine, entity, changes))
