"""Steps of members, transactions and secured connections, the same for every Python client.

A client is a `Client`: a few verbs in its own words (confluent_kafka_together.py and its brothers).
Here is what is done with them.  A member polls in a thread of its own, as in a program of a user;
one that is killed is a process of its own.
"""

import os
import queue
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from .lots import check_equal
from .steps import Scene, Steps

PARTITIONS = 4
COUNT = 80
TIMEOUT_S = 60.0
# Nobody waits for the end of one, but for that of the member that is killed: on a busy machine who
# stands still for a moment is a member still, and who comes back finds its place.
SESSION_MS = 60_000
KILLED_SESSION_MS = 6_000
USER, PASSWORD = "matrix", "a long password"
# Not SEGBROKER_...: a broker that is started beside them would take them for its settings.
SECURED = "MATRIX_SECURED"
AUTHORITY = "MATRIX_AUTHORITY"


class Client(ABC):
    """One library. `handle` is whatever it uses for a consumer or a producer."""

    @abstractmethod
    def create(self, bootstrap: str, topic: str, partitions: int) -> None: ...

    @abstractmethod
    def send(self, bootstrap: str, topic: str, values: list[bytes], **secure: Any) -> None:
        """Send to the partitions in turn and wait for the answers."""

    @abstractmethod
    def join(
        self, bootstrap: str, group: str, topic: str, place: str | None = None, **more: Any
    ) -> Any:
        """A consumer of a group, from the earliest record on; commits only when told."""

    @abstractmethod
    def poll(self, handle: Any) -> list[bytes]:
        """What came within a few hundredths of a second."""

    @abstractmethod
    def owned(self, handle: Any) -> set[int]: ...

    @abstractmethod
    def commit(self, handle: Any) -> None: ...

    @abstractmethod
    def leave(self, handle: Any) -> None: ...

    @abstractmethod
    def secure(self, authority: str) -> dict[str, Any]:
        """Settings for TLS with SCRAM."""

    @abstractmethod
    def committed_only(self) -> dict[str, Any]:
        """Settings for read_committed."""

    @abstractmethod
    def transact(
        self,
        bootstrap: str,
        transactional_id: str,
        topic: str,
        values: list[bytes],
        *,
        commit: bool,
        offsets: tuple[str, str, int] | None = None,
    ) -> None:
        """One transaction; `offsets`: (group, topic, offset) of partition 0 go with it."""

    @abstractmethod
    def committed(self, bootstrap: str, group: str, topic: str) -> int | None:
        """The committed offset of partition 0."""


class Member:
    """A consumer in a thread of its own.  Use it in a `with` block."""

    def __init__(self, client: Client, *words: Any, **named: Any) -> None:
        self.values: list[bytes] = []
        self.owned: set[int] = set()
        self._client = client
        self._open: Callable[[], Any] = lambda: client.join(*words, **named)
        self._told: queue.SimpleQueue[threading.Event] = queue.SimpleQueue()
        self._end = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            handle = self._open()
            try:
                while not self._end.is_set():
                    while not self._told.empty():
                        done = self._told.get()
                        self._client.commit(handle)
                        done.set()
                    self.values += self._client.poll(handle)
                    self.owned = self._client.owned(handle)
            finally:
                self._client.leave(handle)
        except BaseException as exc:
            self._failure = exc

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def commit(self) -> None:
        done = threading.Event()
        self._told.put(done)
        until(done.is_set, self)

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def until(true: Callable[[], bool], *members: Member) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not true():
        for member in members:
            member.check()
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not so within {TIMEOUT_S} s: {[m.owned for m in members]}")
        time.sleep(0.02)


def session_ms() -> int:
    """Of the members of this process."""
    return KILLED_SESSION_MS if is_to_be_killed() else SESSION_MS


def is_to_be_killed() -> bool:
    """Whether this process is the other member (see `run_as_member`)."""
    return sys.argv[1:2] == ["member"]


def values_of(name: str, count: int = COUNT) -> list[bytes]:
    return [b"%s-%d" % (name.encode(), n) for n in range(count)]


ALL = set(range(PARTITIONS))


def add_steps(
    steps: Steps,
    client: Client,
    module: str,
    *,
    groups_since: tuple[int, ...] = (0,),
    static_since: tuple[int, ...] = (0,),
    transactions_since: tuple[int, ...] = (0,),
    secured_since: tuple[int, ...] = (0,),
) -> None:
    """Give a client's list the steps that are the same for all.

    Args:
        steps: gets them.
        client: the library's verbs.
        module: which can be run as a program with `member BOOTSTRAP GROUP TOPIC`.
        groups_since: first release with groups; likewise the others.
    """

    def filled(scene: Scene, name: str) -> tuple[str, list[bytes]]:
        topic, values = scene.topic(name), values_of(name)
        client.create(scene.bootstrap, topic, PARTITIONS)
        client.send(scene.bootstrap, topic, values)
        return topic, values

    @steps.step(since=groups_since)
    def a_group_reads_commits_and_resumes(scene: Scene) -> None:
        topic, values = filled(scene, "resumed")
        with Member(client, scene.bootstrap, topic, topic) as one:
            until(lambda: len(one.values) == COUNT, one)
            check_equal("values", sorted(one.values), sorted(values))
            one.commit()
        later = values_of("later", 20)
        client.send(scene.bootstrap, topic, later)
        with Member(client, scene.bootstrap, topic, topic) as two:
            until(lambda: len(two.values) >= len(later), two)
        check_equal("behind what was committed", sorted(two.values), sorted(later))

    @steps.step(since=groups_since)
    def two_members_share_and_one_leaves(scene: Scene) -> None:
        topic, _ = filled(scene, "shared")
        with Member(client, scene.bootstrap, topic, topic) as one:
            until(lambda: one.owned == ALL, one)
            with Member(client, scene.bootstrap, topic, topic) as two:
                until(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2, one, two)
                check_equal("shared", one.owned | two.owned, ALL)
            until(lambda: one.owned == ALL, one)

    @steps.step(since=groups_since)
    def a_killed_member_is_replaced(scene: Scene) -> None:
        topic, _ = filled(scene, "killed")
        command = [sys.executable, "-m", module, "member", scene.bootstrap, topic, topic]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            check_equal("said by the other", process.stdout.readline(), "joined\n")
            with Member(client, scene.bootstrap, topic, topic) as one:
                until(lambda: len(one.owned) == PARTITIONS // 2, one)
                process.kill()
                until(lambda: one.owned == ALL, one)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    @steps.step(since=static_since)
    def a_static_member_comes_back_to_its_place(scene: Scene) -> None:
        topic, _ = filled(scene, "static")
        with Member(client, scene.bootstrap, topic, topic, "place-1") as one:
            until(lambda: one.owned == ALL, one)
            with Member(client, scene.bootstrap, topic, topic, "place-2") as two:
                until(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2, one, two)
                had = set(two.owned)
            # A static member that ends does not leave: its partitions wait for it.
            with Member(client, scene.bootstrap, topic, topic, "place-2") as two:
                until(lambda: two.owned == had, one, two)

    @steps.step(since=transactions_since)
    def transactions_are_seen_whole_or_not_at_all(scene: Scene) -> None:
        topic = scene.topic("transactions")
        client.create(scene.bootstrap, topic, 1)
        lots = [(values_of(name, 10), name != "lost") for name in ("kept", "lost", "last")]
        for values, commit in lots:
            client.transact(scene.bootstrap, topic, topic, values, commit=commit)
        expected = [one for values, commit in lots if commit for one in values]
        more = client.committed_only()
        with Member(client, scene.bootstrap, topic, topic, **more) as one:
            until(lambda: len(one.values) >= len(expected), one)
        check_equal("committed", one.values, expected)

    @steps.step(since=transactions_since)
    def offsets_go_with_their_transaction(scene: Scene) -> None:
        topic, group = scene.topic("offsets"), scene.topic("offsets-group")
        client.create(scene.bootstrap, topic, 1)
        for offset, commit, expected in ((3, True, 3), (7, False, 3), (9, True, 9)):
            client.transact(
                scene.bootstrap,
                topic,
                topic,
                values_of("n", 3),
                commit=commit,
                offsets=(group, topic, offset),
            )
            check_equal("offset", client.committed(scene.bootstrap, group, topic), expected)

    @steps.step(since=secured_since)
    def tls_and_scram_let_in_who_knows_the_password(scene: Scene) -> None:
        address, secure = os.environ[SECURED], client.secure(os.environ[AUTHORITY])
        topic, values = scene.topic("secured"), values_of("secured")
        client.create(scene.bootstrap, topic, PARTITIONS)
        client.send(address, topic, values, **secure)
        with Member(client, address, topic, topic, **secure) as one:
            until(lambda: len(one.values) == COUNT, one)
        check_equal("values", sorted(one.values), sorted(values))


def run_as_member(client: Client) -> bool:
    """Be the other member, if the program was started for that; ends by being killed."""
    if not is_to_be_killed():
        return False
    handle = client.join(*sys.argv[2:5])
    told = False
    while True:
        client.poll(handle)
        if not told and client.owned(handle):
            told = True
            print("joined", flush=True)
