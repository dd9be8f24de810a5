"""Every call of an admin: a question that is answered is answered as without the fault, a change
that is told as done is done, one that is refused is not; one that may be done is not tried again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from segbroker.client import (
    Acl,
    AclFilter,
    Admin,
    BrokenError,
    BrokerError,
)
from segbroker.protocol.api_keys import ApiKey

from .consumers import COUNT
from .deeds import Code, Cut, Miscounted, Silent, Throttled
from .producers import fill
from .story import Failed, Story

Prepare = Callable[[Story], None]


def _nothing(story: Story) -> None:
    """It is all there."""


def _committed(story: Story) -> None:
    fill(story, COUNT)
    with Admin(story.stage.broker.address) as admin:
        admin.commit(story.name, {(story.name, 0): 2, (story.name, 1): 3})


def _shared(story: Story) -> None:
    fill(story, COUNT)
    with Admin(story.stage.broker.address) as admin:
        admin.alter_share_offsets(story.name, {(story.name, 0): 2, (story.name, 1): 3})


def _user(story: Story) -> None:
    with Admin(story.stage.broker.address) as admin:
        admin.set_password(story.name, "password", iterations=4096)


def _acl(name: str) -> Acl:
    return Acl(f"User:{name}", "read", "topic", name)


def _ruled(story: Story) -> None:
    with Admin(story.stage.broker.address) as admin:
        admin.create_acls([_acl(story.name)])


def _quota(story: Story) -> None:
    with Admin(story.stage.broker.address) as admin:
        admin.alter_quotas({"user": story.name}, {"producer_byte_rate": 1e6})


def _filled(story: Story) -> None:
    fill(story, COUNT)


@dataclass(frozen=True)
class Errand:
    """A call of an admin.

    Attributes:
        key: its api.
        does: the call, of an admin and a name.
        is_done: of a change: whether it was made.
        is_repeated: of a change: it does no harm to make it twice.
        is_steady: of a question: the same is answered each time.
    """

    name: str
    key: ApiKey
    does: Callable[[Any, str], Any]
    prepare: Prepare = _nothing
    is_done: Callable[[Admin, str], bool] | None = None
    is_repeated: bool = False
    is_steady: bool = True
    others: tuple[ApiKey, ...] = ()


def _is_there(admin: Admin, name: str) -> bool:
    return name in admin.list_topics()


GROUP: Final = (ApiKey.FIND_COORDINATOR,)

ERRANDS: Final = (
    Errand("create_topic", ApiKey.CREATE_TOPICS, lambda a, n: a.create_topic(n), is_done=_is_there),
    Errand(
        "delete_topic",
        ApiKey.DELETE_TOPICS,
        lambda a, n: a.delete_topic(n),
        _filled,
        lambda a, n: not _is_there(a, n),
    ),
    Errand(
        "create_partitions",
        ApiKey.CREATE_PARTITIONS,
        lambda a, n: a.create_partitions(n, 5),
        _filled,
        lambda a, n: len(a.partitions(n)) == 5,
    ),
    Errand(
        "alter_topic_config",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        lambda a, n: a.alter_topic_config(n, {"retention.ms": "12345678"}),
        _filled,
        lambda a, n: a.describe_topic(n).config["retention.ms"].value == "12345678",
    ),
    Errand(
        "delete_records",
        ApiKey.DELETE_RECORDS,
        lambda a, n: a.delete_records({(n, 0): 2, (n, 1): 2}),
        _filled,
        lambda a, n: all(it.offset == 2 for it in a.offsets(n, "start").values()),
        others=(ApiKey.METADATA,),
    ),
    Errand(
        "alter_group_config",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        lambda a, n: a.alter_group_config(n, {"share.record.lock.duration.ms": "20000"}),
        is_done=lambda a, n: (
            a.describe_group_config(n)["share.record.lock.duration.ms"].value == "20000"
        ),
    ),
    Errand(
        "commit",
        ApiKey.OFFSET_COMMIT,
        lambda a, n: a.commit(n, {(n, 0): 1, (n, 1): 1}),
        _filled,
        lambda a, n: len(a.committed(n)) == 2,
        is_repeated=True,
        others=GROUP,
    ),
    Errand(
        "delete_group",
        ApiKey.DELETE_GROUPS,
        lambda a, n: a.delete_group(n),
        _committed,
        lambda a, n: not a.committed(n),
        others=GROUP,
    ),
    Errand(
        "alter_share_offsets",
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        lambda a, n: a.alter_share_offsets(n, {(n, 0): 1, (n, 1): 1}),
        _filled,
        lambda a, n: len(a.share_offsets(n)) == 2,
        is_repeated=True,
        others=GROUP,
    ),
    Errand(
        "delete_share_offsets",
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        lambda a, n: a.delete_share_offsets(n, n),
        _shared,
        lambda a, n: not a.share_offsets(n),
        others=GROUP,
    ),
    Errand(
        "create_acls",
        ApiKey.CREATE_ACLS,
        lambda a, n: a.create_acls([_acl(n), _acl(f"{n}-other")]),
        is_done=lambda a, n: bool(a.list_acls(AclFilter(principal=f"User:{n}-other"))),
    ),
    Errand(
        "delete_acls",
        ApiKey.DELETE_ACLS,
        lambda a, n: a.delete_acls(AclFilter(principal=f"User:{n}")),
        _ruled,
        lambda a, n: not a.list_acls(AclFilter(principal=f"User:{n}")),
    ),
    Errand(
        "set_password",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        lambda a, n: a.set_password(n, "password", iterations=4096),
        is_done=lambda a, n: bool(a.list_users([n])),
    ),
    Errand(
        "delete_user",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        lambda a, n: a.delete_user(n),
        _user,
        lambda a, n: not a.list_users([n]),
        others=(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,),
    ),
    Errand(
        "alter_quotas",
        ApiKey.ALTER_CLIENT_QUOTAS,
        lambda a, n: a.alter_quotas({"user": n}, {"producer_byte_rate": 1e6}),
        is_done=lambda a, n: bool(a.list_quotas({"user": n})),
    ),
    # Questions.
    Errand("list_topics", ApiKey.METADATA, lambda a, n: a.list_topics(), _filled, is_steady=False),
    Errand("describe_topic", ApiKey.DESCRIBE_CONFIGS, lambda a, n: a.describe_topic(n), _filled),
    Errand("partitions", ApiKey.METADATA, lambda a, n: a.partitions(n), _filled),
    Errand("offsets", ApiKey.LIST_OFFSETS, lambda a, n: a.offsets(n, "end"), _filled),
    Errand("stored_records", ApiKey.METADATA, lambda a, n: a.stored_records(n), _filled),
    Errand("cleanings", ApiKey.METADATA, lambda a, n: a.cleanings(n), _filled),
    Errand("describe_cluster", ApiKey.METADATA, lambda a, n: a.describe_cluster()),
    Errand("describe_broker", ApiKey.DESCRIBE_CONFIGS, lambda a, n: a.describe_broker(None)),
    Errand("list_groups", ApiKey.LIST_GROUPS, lambda a, n: a.list_groups(), is_steady=False),
    Errand(
        "describe_group",
        ApiKey.DESCRIBE_GROUPS,
        lambda a, n: a.describe_group(n),
        _committed,
        others=(*GROUP, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.SHARE_GROUP_DESCRIBE),
    ),
    Errand(
        "describe_groups",
        ApiKey.DESCRIBE_GROUPS,
        lambda a, n: a.describe_groups([n, f"{n}-other"]),
        _committed,
        others=(*GROUP, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.SHARE_GROUP_DESCRIBE),
    ),
    Errand("committed", ApiKey.OFFSET_FETCH, lambda a, n: a.committed(n), _committed, others=GROUP),
    Errand(
        "committed_of",
        ApiKey.OFFSET_FETCH,
        lambda a, n: a.committed_of([n, f"{n}-other"]),
        _committed,
        others=GROUP,
    ),
    Errand(
        "describe_group_config",
        ApiKey.DESCRIBE_CONFIGS,
        lambda a, n: a.describe_group_config(n),
    ),
    Errand(
        "share_offsets",
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        lambda a, n: a.share_offsets(n),
        _shared,
        others=GROUP,
    ),
    Errand(
        "share_offsets_of",
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        lambda a, n: a.share_offsets_of([n]),
        _shared,
        others=GROUP,
    ),
    Errand(
        "list_acls",
        ApiKey.DESCRIBE_ACLS,
        lambda a, n: a.list_acls(AclFilter(principal=f"User:{n}")),
        _ruled,
    ),
    Errand(
        "list_users", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, lambda a, n: a.list_users([n]), _user
    ),
    Errand(
        "list_quotas",
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        lambda a, n: a.list_quotas({"user": n}),
        _quota,
    ),
)


async def administers(story: Story, errand: Errand) -> None:
    """Once with the fault, and once more without it."""
    kit, name = story.kit, story.name
    story.is_idempotent = errand.is_done is None or errand.is_repeated
    errand.prepare(story)
    admin = kit.admin(story.address)
    if not await story.open("open", admin):
        story.heal()
        admin = kit.admin(story.address)
        await story.again("open again", partial(kit.open, admin))
        story._opened.append(admin)

    async def call() -> Any:  # noqa: ANN401
        return await kit.do(errand.does(admin, name))

    before = story.door.seen[errand.key]
    got = await story.step(errand.name, call)
    asked = story.door.seen[errand.key] - before
    story.heal()
    if errand.is_done is None:
        await _answered(story, errand, got, call)
    else:
        await _changed(story, errand, got, call, asked)
    await story.end()


async def _answered(story: Story, errand: Errand, got: Any, call: Any) -> None:  # noqa: ANN401
    again = await story.again(f"{errand.name} again", call)
    if isinstance(got, Failed) or not errand.is_steady:
        return
    fault = story.fault
    if fault.key == ApiKey.METADATA and any("partitions" in each.place for each in fault.codes):
        return  # a partition without a leader is described as that
    if all(isinstance(d, Code | Cut | Throttled | Silent | Miscounted) for d in fault.deeds):
        story.check(got == again, f"answered with {got!r:.300}, and it is {again!r:.300}")


async def _changed(
    story: Story,
    errand: Errand,
    got: Any,  # noqa: ANN401
    call: Any,  # noqa: ANN401
    asked: int,
) -> None:
    assert errand.is_done is not None
    with Admin(story.stage.broker.address) as direct:
        is_done = errand.is_done(direct, story.name)
        is_hidden = story.door.has_lied or any(each.is_done for each in story.fault.codes)
        if not isinstance(got, Failed):
            story.check(is_done, "told as done, and it is not")
        elif isinstance(got.error, BrokerError) and not is_hidden:
            story.check(not is_done, f"refused with {got.error!r}, and it is done")
        if story.fault.key == errand.key and story.door.happened:
            deed = story.fault.deed
            may_be_done = isinstance(deed, Silent | Miscounted) or (
                isinstance(deed, Cut) and deed.where != "before"
            )
            if may_be_done and not errand.is_repeated:
                story.check(asked == 1, f"asked {asked} times, and it may have been done")
                story.check(
                    isinstance(got, Failed) and isinstance(got.error, BrokenError),
                    f"{got!r}, and nobody can know that",
                )
        if not is_done:
            await story.again(f"{errand.name} again", call)
            story.check(errand.is_done(direct, story.name), "told as done again, and it is not")
