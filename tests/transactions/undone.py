"""Rules of the coordinator, each undone: what the cases have to find.

`python -m tests.soak.broker_transactions --undone` counts how many cases that takes.  As with
the planted bugs of segments/, nothing of the broker may be imported before one is undone.
"""

from typing import Final

from ..segments.planted.planting import Bug

HARNESS: Final = "broker_transactions"
CASES_MAX: Final = 300
LEDGER: Final = "broker.transactions.ledger"
RULES: Final = "broker.transactions.transactions"
MARKERS: Final = "broker.transactions.markers"
UPKEEP: Final = "broker.transactions.transaction_upkeep"
BATCHES: Final = "broker.transactions.query_batches"

UNDONE: Final = (
    Bug(
        "an older epoch may do what the present one may",
        RULES,
        "    return ErrorCode.NONE if epoch == known.epoch else ErrorCode.PRODUCER_FENCED",
        "    return ErrorCode.NONE",
        HARNESS,
    ),
    Bug(
        "another instance leaves open what there is",
        RULES,
        "        decision = abort(known, spare_id) if goes_on else fence(known)\n"
        "        return Verdict(ErrorCode.CONCURRENT_TRANSACTIONS, decision=decision)\n",
        "        pass\n",
        HARNESS,
    ),
    Bug(
        "an end of the other outcome is answered as the same",
        RULES,
        "    is_same = outcome is not None and bool(outcome) == commit",
        "    is_same = outcome is not None",
        HARNESS,
    ),
    Bug(
        "an end leaves the epoch as it is under version 2",
        RULES,
        "            following = _next(known, spare_id)\n"
        "            decision = Decision(known.transactional_id, *known.key, *following",
        "            following = known.key\n"
        "            decision = Decision(known.transactional_id, *known.key, *following",
        HARNESS,
    ),
    Bug(
        "a batch is taken of a partition that takes no part",
        RULES,
        "    if known.state is State.ONGOING and known.has(topic, partition):",
        "    if True:",
        HARNESS,
    ),
    Bug(
        "what takes part forgets what did",
        RULES,
        "    merged: dict[str, tuple[int, ...]] = dict(known.partitions) if is_open else {}",
        "    merged: dict[str, tuple[int, ...]] = {}",
        HARNESS,
    ),
    Bug(
        "offsets that were staged before are forgotten",
        RULES,
        "    offsets = dict(known.offsets) if is_open else {}",
        "    offsets: dict[str, tuple[tuple[object, ...], ...]] = {}",
        HARNESS,
    ),
    Bug(
        "a change is answered before it is durable",
        LEDGER,
        "await recorded(lambda done: self._manager.record_soon(done, kind, **fields))",
        "self._manager.record_soon(lambda *_: None, kind, **fields)",
        HARNESS,
    ),
    Bug(
        "records of weaker classes are not synced before a commit",
        LEDGER,
        "            if not await self._markers.sync_data(known):",
        "            if False:",
        HARNESS,
    ),
    Bug(
        "what may have lost records is committed",
        UPKEEP,
        "        return known.boot == BOOT_TORN or any(",
        "        return any(",
        HARNESS,
    ),
    Bug(
        "nobody marks what may have lost records",
        "tearing",
        "        now = BOOT_TORN if is_torn else boot",
        "        now = boot",
        HARNESS,
    ),
    Bug(
        "a start does not go on with what is decided",
        UPKEEP,
        "                self._ledger.complete_soon(entry)\n            elif",
        "                pass\n            elif",
        HARNESS,
    ),
    Bug(
        "nothing is too late",
        UPKEEP,
        "            if entry.deadline_ms <= monotonic and entry not in self._aborting:",
        "            if False:",
        HARNESS,
    ),
    Bug(
        "what is decided counts as marked at once",
        LEDGER,
        "        await self._markers.write_all(ended, self._now_ms())\n",
        "",
        HARNESS,
    ),
    Bug(
        "a marker that could not be written is not tried again",
        MARKERS,
        "        while not await self._attempt(topic, index, ending, outcome, now_ms, unless):",
        "        if not await self._attempt(topic, index, ending, outcome, now_ms, unless):",
        HARNESS,
    ),
    Bug(
        "a marker is durable when it is appended",
        MARKERS,
        "            return await self._is_durable(partition, end_offset)",
        "            return True",
        HARNESS,
    ),
    Bug(
        "offsets of an aborted transaction stand",
        "transactions",
        "        if commit:\n            offsets += known.offsets.items()",
        "        if True:\n            offsets += known.offsets.items()",
        HARNESS,
    ),
    Bug(
        "an abort has the markers of a commit",
        "transactions",
        "    ends = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT",
        "    ends = State.PREPARE_COMMIT",
        HARNESS,
    ),
    Bug(
        "what waits for a commit stands though its group is deleted",
        RULES,
        "    if known is None or known.state is not State.ONGOING or group not in known.offsets:",
        "    if True:",
        HARNESS,
    ),
    Bug(
        "a batch commits the last of its transactions",
        BATCHES,
        "ending.append((entries[name], transactions.end_by_another(known, spare_id)))",
        "ending = [(entries[name], transactions.end_by_another(known, spare_id))]",
        HARNESS,
    ),
    Bug(
        "a batch is committed though one of its transactions is over",
        BATCHES,
        "            elif not is_repeated and (code or",
        "            elif False and (code or",
        HARNESS,
    ),
    Bug(
        "offsets are staged whatever the generation",
        "broker.groups.group",
        "        if not code and generation != self.earlier",
        "        if False and generation != self.earlier",
        HARNESS,
    ),
    Bug(
        "an id is forgotten while its transaction is open",
        UPKEEP,
        "    return known is not None and known.at_ms < before_ms and known.state.is_idle",
        "    return known is not None and known.at_ms < before_ms",
        HARNESS,
    ),
)
