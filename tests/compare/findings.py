"""What a run has come to: what differs, and which rules were needed."""

import collections

from segbroker.protocol.api_keys import ApiKey

from .answers import Fields, differences
from .rules import ACCEPTED, acceptance, normalised

Seen = dict[str, Fields]
LABELS_MAX = 4

Row = tuple[str, str, str, str, str]


class Findings:
    """What the run has come to, over all grounds."""

    def __init__(self) -> None:
        self.found: dict[Row, list[int]] = collections.defaultdict(list)
        self.used: collections.Counter[int] = collections.Counter()
        self.failures: list[str] = []
        self.answers = self.fields_count = 0

    def compare(self, key: ApiKey, name: str, version: int, theirs: Seen, ours: Seen) -> None:
        """Look at what both answered to one story."""
        self.answers += len(theirs)
        for label in dict.fromkeys([*theirs, *ours]):
            their, our = (normalised(key, one.get(label, {})) for one in (theirs, ours))
            self.fields_count += len(their)
            for difference in differences(their, our):
                rule = acceptance(key, label, difference)
                if rule is not None:
                    self.used[ACCEPTED.index(rule)] += 1
                else:
                    values = short(difference.theirs), short(difference.ours)
                    self.found[name, label, difference.path, *values].append(version)

    def print(self, *, whole: bool) -> int:
        """Print what differs. Returns the exit code."""
        alike: dict[Row, list[str]] = collections.defaultdict(list)
        for (name, label, path, their_value, our_value), versions in self.found.items():
            span = f"v{versions[0]}" if len(versions) == 1 else f"v{versions[0]}-{versions[-1]}"
            alike[name, span, path, their_value, our_value].append(label)
        for (name, span, path, their_value, our_value), labels in alike.items():
            said = ", ".join(labels[:LABELS_MAX]) + f" and {len(labels) - LABELS_MAX} more" * (
                len(labels) > LABELS_MAX
            )
            print(f"{name} {span} / {said}: {path}: Kafka {their_value}, segbroker {our_value}")
        for line in self.failures:
            print(f"NOT PLAYED {line}")
        if whole:
            for number, rule in enumerate(ACCEPTED):
                if not self.used[number]:
                    print(f"accepted rule is not needed: {rule.key.name} {rule.path} {rule.label}")
        print(
            f"{self.answers} answers, {self.fields_count} fields compared; "
            f"{len(self.found)} differences, {self.used.total()} accepted by {len(self.used)} "
            f"rules, {len(self.failures)} not played"
        )
        return 1 if self.found or self.failures else 0


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:77]}..."
