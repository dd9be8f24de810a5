"""The index of rules against a model that looks at every rule, one after the other."""

from hypothesis import given, settings
from hypothesis import strategies as st

from segbroker.broker.access.acl_rules import Rules, Verdict
from segbroker.protocol.acls import Operation, PatternType, Permission, ResourceType
from segbroker.segments.metadata.acls import Acl

from ..support.counted import CountedName
from ..support.steps import calls_of

LITERAL, PREFIXED = int(PatternType.LITERAL), int(PatternType.PREFIXED)
ALLOW, DENY = int(Permission.ALLOW), int(Permission.DENY)
PRINCIPALS = ["User:alice", "User:bob", "User:*"]
HOSTS = ["10.0.0.1", "10.0.0.2", "*"]
NAMES = ["*", "f", "fl", "flights", "flights-eu", "g"]
OPERATIONS = [one for one in Operation if one > Operation.ANY]
KINDS = [ResourceType.TOPIC, ResourceType.GROUP]

acls = st.builds(
    Acl,
    st.sampled_from(KINDS).map(int),
    st.sampled_from(NAMES),
    st.sampled_from([int(PatternType.LITERAL), int(PatternType.PREFIXED)]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS).map(int),
    st.sampled_from([int(Permission.ALLOW), int(Permission.ALLOW), int(Permission.DENY)]),
)
questions = st.tuples(
    st.sampled_from(PRINCIPALS[:2]),
    st.sampled_from(HOSTS[:2]),
    st.sampled_from([one for one in OPERATIONS if one is not Operation.ALL]).map(int),
    st.sampled_from(KINDS).map(int),
    st.sampled_from(NAMES[1:]),
)

IMPLIES_DESCRIBE = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}


def is_about(acl: Acl, kind: int, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def does(acl: Acl, operation: int) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    if acl.permission == Permission.DENY:
        return False
    return (operation == Operation.DESCRIBE and acl.operation in IMPLIES_DESCRIBE) or (
        operation == Operation.DESCRIBE_CONFIGS and acl.operation == Operation.ALTER_CONFIGS
    )


def model(rules: list[Acl], question: tuple[str, str, int, int, str]) -> Verdict:
    principal, host, operation, kind, name = question
    about = [acl for acl in rules if is_about(acl, kind, name)]
    hits = [
        acl.permission
        for acl in about
        if acl.principal in (principal, "User:*") and acl.host in (host, "*")
        if does(acl, operation)
    ]
    if Permission.DENY in hits:
        return Verdict.DENIED
    if Permission.ALLOW in hits:
        return Verdict.ALLOWED
    return Verdict.SILENT if about else Verdict.UNRULED


@settings(max_examples=150, deadline=None)
@given(st.lists(acls, max_size=12), st.lists(questions, min_size=1, max_size=20))
def test_the_index_says_what_a_look_at_every_rule_says(
    rules: list[Acl], asked: list[tuple[str, str, int, int, str]]
) -> None:
    indexed = Rules(rules)
    for question in asked:
        assert indexed.verdict(*question) is model(rules, question), question


@settings(max_examples=150, deadline=None)
@given(
    st.lists(acls, max_size=12),
    st.lists(acls, max_size=6),
    st.lists(acls, max_size=6),
    st.lists(questions, min_size=1, max_size=20),
)
def test_rules_that_were_changed_are_those_that_there_are_then(
    before: list[Acl],
    added: list[Acl],
    removed: list[Acl],
    asked: list[tuple[str, str, int, int, str]],
) -> None:
    some = Rules(before)
    more = some.changed(added=added)
    fewer = more.changed(removed=removed)
    assert list(some.acls) == list(dict.fromkeys(before)), "others go by these meanwhile"
    assert list(more.acls) == list(dict.fromkeys(before + added))
    left = [acl for acl in more.acls if acl not in removed]
    assert list(fewer.acls) == left
    for rules, there_are in ((some, before), (more, before + added), (fewer, left)):
        for question in asked:
            assert rules.verdict(*question) is model(there_are, question), question
            principal, host, operation, kind, _ = question
            anew = Rules(there_are).allows_some(principal, host, operation, kind)
            assert rules.allows_some(principal, host, operation, kind) == anew


@settings(max_examples=150, deadline=None)
@given(st.lists(acls, max_size=8), questions)
def test_whether_some_resource_is_allowed_agrees_with_asking_for_each(
    rules: list[Acl], question: tuple[str, str, int, int, str]
) -> None:
    principal, host, operation, kind, _ = question
    names = [f"{name}{suffix}" for name in NAMES for suffix in ("", "!", "~rare")] + ["other"]
    some = any(
        model(rules, (principal, host, operation, kind, name)) is Verdict.ALLOWED for name in names
    )
    assert Rules(rules).allows_some(principal, host, operation, kind) == some


def test_whether_some_topic_is_allowed_is_one_look_at_each_rule() -> None:
    # Once it was a look at all rules for each that allows something: seconds, with a thousand.
    bob = CountedName("User:bob")
    allowed = [Acl(2, f"bob-{n}", PREFIXED, bob, "*", Operation.WRITE, ALLOW) for n in range(300)]
    others = [Acl(2, f"x-{n}", PREFIXED, bob, "*", Operation.WRITE, DENY) for n in range(300)]
    denied = Acl(2, "*", LITERAL, bob, "*", Operation.WRITE, DENY)
    prefix = Acl(2, "bob-", PREFIXED, bob, "*", Operation.WRITE, DENY)
    for last in (denied, prefix):
        rules = Rules([*allowed, *others, last])
        CountedName.compared = 0
        assert not rules.allows_some(CountedName("User:bob"), "10.0.0.1", int(Operation.WRITE), 2)
        assert CountedName.compared <= 10 * len(allowed)


def test_a_question_looks_at_what_its_principal_has_however_many_others_have_the_like() -> None:
    """Each user has a rule about all topics, one about the cluster, one about a prefix."""
    users = 300
    rules = Rules(
        Acl(kind, name, pattern_type, f"User:u{n}", "*", Operation.WRITE, ALLOW)
        for n in range(users)
        for kind, name, pattern_type in (
            (2, "*", LITERAL),
            (4, "kafka-cluster", LITERAL),
            (3, "team-", PREFIXED),
        )
    )
    write = int(Operation.WRITE)

    def asks() -> None:
        for n in range(users):
            for kind, name in ((2, "t"), (4, "kafka-cluster"), (3, "team-a")):
                question = (f"User:u{n}", "10.0.0.1", write, kind)
                assert rules.verdict(*question, name) is Verdict.ALLOWED
                assert rules.allows_some(*question)

    assert calls_of(asks) < 150 * users
    assert rules.verdict("User:v", "10.0.0.1", write, 2, "t") is Verdict.SILENT
    assert rules.verdict("User:u0", "10.0.0.1", write, 3, "t") is Verdict.UNRULED
