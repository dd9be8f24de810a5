"""`python -m tests.compare [API ...]`: play every case to both brokers and say what differs."""

import argparse
import sys
import tempfile
from pathlib import Path

import trio

from segbroker.protocol.api_keys import ApiKey

from . import (  # noqa: F401 - imported for the cases that they register
    cases_acls,
    cases_admin,
    cases_codecs,
    cases_corners,
    cases_expiry,
    cases_fetches,
    cases_frames,
    cases_groups,
    cases_kinds,
    cases_produce,
    cases_read,
    cases_restarts,
    cases_rules,
    cases_rules_admin,
    cases_rules_drawn,
    cases_rules_groups,
    cases_rules_nameless,
    cases_rules_transactions,
    cases_rules_twice,
    cases_security,
    cases_sequences,
    cases_settings,
    cases_shares,
    cases_streams,
    cases_time,
    cases_transactions,
    cases_waiting,
)
from .brokers import Missing, both
from .cases import BROKEN, CASES, Broken, Case, Ground
from .findings import Findings
from .playing import compare, compare_over_a_break, tell_stories


def at_random(seeds: range, steps: int, given: str | None) -> int:
    """Tell stories drawn at random.  Returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="segbroker-compare-") as folder:
        try:
            with both(Path(folder), Ground.STORIES, given) as pair:
                return trio.run(tell_stories, pair, seeds, steps)
        except Missing as exc:
            print(f"cannot be compared here: {exc}")
            return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compare", description=__doc__)
    parser.add_argument("api", nargs="*", help="names of apis, as FETCH; all by default")
    parser.add_argument("--case", default="", help="a part of the names of cases to play")
    parser.add_argument("--ground", choices=[one.value for one in Ground], help="one set-up alone")
    parser.add_argument("--with", dest="given", help="HOST:PORT of an Apache Kafka that runs")
    parser.add_argument("--stories", type=int, default=0, help="tell so many stories instead")
    parser.add_argument("--seed", type=int, default=1, help="of the first story")
    parser.add_argument("--steps", type=int, default=40, help="how many steps a story has")
    options = parser.parse_args()
    if options.stories:
        seeds = range(options.seed, options.seed + options.stories)
        return at_random(seeds, options.steps, options.given)
    keys = {ApiKey[name.upper()] for name in options.api}
    findings = Findings()
    grounds = [Ground.OPEN] if options.given else list(Ground)
    for ground in grounds:

        def is_wanted(one: Case | Broken, ground: Ground = ground) -> bool:
            return (
                one.ground is ground
                and (not keys or one.key in keys)
                and options.case in one.name
                and options.ground in (None, ground.value)
            )

        cases = [one for one in CASES if is_wanted(one)]
        stories = [one for one in BROKEN if is_wanted(one)]
        if not cases and not stories:
            continue
        with tempfile.TemporaryDirectory(prefix="segbroker-compare-") as folder:
            try:
                with both(Path(folder), ground, options.given) as pair:
                    if cases:
                        trio.run(compare, pair, cases, findings)
                    if stories:
                        trio.run(compare_over_a_break, pair, stories, findings)
            except Missing as exc:
                print(f"cannot be compared here: {exc}")
                return 1
    return findings.print(whole=not (keys or options.case or options.ground or options.given))


if __name__ == "__main__":
    sys.exit(main())
