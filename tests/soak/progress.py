"""What a long tier has done so far, over any number of runs: a file that the next run goes on from.

    {"seed": 1, "done": ["rolls", "1000000", ...], "totals": {"images": 70628, ...}}

A job counts when it came to its end; what a deadline cut short is begun again.  The file is
replaced as a whole after every job, so a run may be killed at any time.  Of another seed, or of
another program, it is refused.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path


class Progress:
    """Jobs that are done, and what they add up to."""

    def __init__(self, path: Path | None, program: str, seed: int) -> None:
        """path: None remembers nothing beyond this run.  Raises ValueError for another's file."""
        self._path = path
        self._head = {"program": program, "seed": seed}
        self._done: set[str] = set()
        self.totals: Counter[str] = Counter()
        if path is not None and path.exists():
            content = json.loads(path.read_text())
            found = {key: content.get(key) for key in self._head}
            if found != self._head:
                raise ValueError(f"{path} is of {found}, not of {self._head}")
            self._done.update(content["done"])
            self.totals.update(content["totals"])

    @property
    def jobs_count(self) -> int:
        """Jobs that came to their end."""
        return len(self._done)

    def left(self, jobs: Iterator[str]) -> Iterator[str]:
        """Those that are not done."""
        return (job for job in jobs if job not in self._done)

    def finished(self, job: str, counts: Mapping[str, int]) -> None:
        """A job came to its end."""
        self._done.add(job)
        self.totals.update(counts)
        if self._path is not None:
            state = {**self._head, "done": sorted(self._done), "totals": self.totals}
            temporary = self._path.with_suffix(".tmp")
            temporary.write_text(json.dumps(state))
            os.replace(temporary, self._path)
