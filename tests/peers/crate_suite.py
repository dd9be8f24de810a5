"""Tests that come inside a crate of Rust: the source, how they are run, and how each ended.

A crate has its integration tests as files in `tests/`; each is a program of its own, and two of
them may have tests of one name, so a test is called FILE/NAME here.  They are built with the
versions of the crate's own lock file, but for what a suite asks for: RSASL.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from .places import BUILD_TIMEOUT_S, cache, need, run, unfinished
from .verdicts import Outcome

# Older releases of rsasl are refused by a newer compiler.
RSASL: Final = ("rsasl", "2.3.1")
TIMEOUT_S: Final = 900
# What is built is kept: without what only a debugger reads, it is a fraction of the size.
SMALL: Final = {
    "CARGO_PROFILE_DEV_DEBUG": "0",
    "CARGO_INCREMENTAL": "0",
    "RUST_BACKTRACE": "0",
}

_RUNNING: Final = re.compile(r"^ +Running tests/(\w+)\.rs ")
# What a test prints may stand between its name and its end.
_BEGAN: Final = re.compile(r"^test (\w+) \.\.\. ")
_ENDED: Final = re.compile(r"^(?:test \w+ \.\.\. )?(ok|FAILED|ignored)\b")
_OUTCOMES: Final = {"ok": Outcome.PASSED, "FAILED": Outcome.FAILED, "ignored": Outcome.SKIPPED}


def fetch(crate: str, version: str, source: Path, *newer: tuple[str, str]) -> None:
    """Copy the source of a crate to `source`, ready to be built.

    Args:
        crate: its name.
        version: its version.
        source: where to; it does not exist.
        newer: (crate, version) of what is built in another version than it is locked to.

    Raises:
        Missing: there is no cargo, or no such crate.
    """
    need("cargo")
    asking = cache() / f"{crate}-{version}-asking"
    if not asking.exists():
        asking.parent.mkdir(parents=True, exist_ok=True)
        with unfinished(asking) as work:
            (work / "src").mkdir()
            (work / "src" / "lib.rs").touch()
            (work / "Cargo.toml").write_text(
                '[package]\nname = "asking"\nversion = "0.0.0"\nedition = "2021"\n'
                f'[workspace]\n[dependencies]\n{crate} = "={version}"\n'
            )
    told = json.loads(run(["cargo", "metadata", "-q", "--format-version", "1"], asking))
    (found,) = (one["manifest_path"] for one in told["packages"] if one["name"] == crate)
    shutil.copytree(Path(found).parent, source)
    # Which compiler its authors take is nothing to us; and it is no part of a tree around it.
    (source / "rust-toolchain.toml").unlink(missing_ok=True)
    with (source / "Cargo.toml").open("a") as manifest:
        manifest.write("\n[workspace]\n")
    for other, precise in newer:
        run(["cargo", "update", "-q", "-p", other, "--precise", precise], source)


def play(
    source: Path,
    files: Sequence[str],
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    features: Sequence[str] = (),
    without: Sequence[str] = (),
    is_ignoring: bool = True,
    output: Path,
) -> dict[str, Outcome]:
    """Build the tests in these files and run them, one at a time.

    Args:
        source: the crate.
        files: names of files in `tests/`, without their ending.
        words: only tests whose names hold one of these; none for all.
        environment: what the tests are told, beside the environment of this process.
        features: those of the crate beside its default ones.
        without: parts of names of tests that are not run.
        is_ignoring: leave out those that are marked `#[ignore]`.
        output: gets what they print.

    Returns:
        FILE/TEST -> how it ended.
    """
    target = cache() / "cargo"
    told = {**os.environ, **SMALL, "CARGO_TARGET_DIR": str(target), **environment}
    command = [
        "cargo",
        "test",
        "--no-fail-fast",
        "--color",
        "never",
        "--features",
        ",".join(features),
    ]
    command += [word for file in files for word in ("--test", file)]
    marked = [] if is_ignoring else ["--include-ignored"]
    asked = [*marked, *words, *(word for one in without for word in ("--skip", one))]
    with output.open("w") as sink:
        subprocess.run(
            [*command, "--", "--test-threads", "1", *asked],
            cwd=source,
            env=told,
            stdout=sink,
            stderr=subprocess.STDOUT,
            timeout=BUILD_TIMEOUT_S + TIMEOUT_S,
        )
    return ends(output.read_text())


def ends(output: str) -> dict[str, Outcome]:
    """How each test ended, from what cargo prints; one that has not said so has failed."""
    found: dict[str, Outcome] = {}
    file = test = ""
    for line in output.splitlines():
        if running := _RUNNING.match(line):
            file, test = running[1], ""
        if began := _BEGAN.match(line):
            test = f"{file}/{began[1]}"
            found[test] = Outcome.FAILED
        if test and (ended := _ENDED.match(line)):
            found[test] = _OUTCOMES[ended[1]]
            test = ""
    return found
