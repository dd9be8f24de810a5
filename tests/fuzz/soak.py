"""The fuzz targets for as long as one likes: `make soak SECONDS=600 SEED=7`.

Each target gets its share of the time in a process of its own, since libFuzzer ends the process
that finds something.  atheris guides the search by coverage of segbroker's modules; where it has
no wheel, inputs are mutated blindly, and the output says so.  An input that breaks a target stays
under .fuzz/ with the command that repeats it; one that was understood becomes a plain test.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
FOUND = ROOT / ".fuzz"
INPUT_SIZE_MAX = 4096
MEMORY_MAX_MIB = 1024
ONE_INPUT_MAX_S = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.soak", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--replay", type=Path, help="run one input on the --target and end")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    quiet()
    if options.replay is not None:
        replay(options.target[0], options.replay)
        return 0
    if options.worker:
        fuzz(options.target[0], options.seconds, options.seed)
        return 0
    # One line per target as it ends, also into a pipe.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a TextIOWrapper
    return supervise(options.seconds, options.seed, options.target)


def quiet() -> None:
    import structlog

    # What the storage engine says about damage would be millions of lines.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def supervise(seconds: int, seed: int, wanted: list[str] | None) -> int:
    """Run every target in a child; the exit code says whether something was found."""
    from .targets import TARGETS

    FOUND.mkdir(exist_ok=True)
    names = wanted or list(TARGETS)
    share = max(1, seconds // len(names))
    guided = importlib.util.find_spec("atheris") is not None
    print(f"{len(names)} targets, {share} s each, seed {seed}, ", end="")
    print("guided by coverage" if guided else "blind: atheris is not installed here")
    failed = 0
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz.soak", "--worker", "--target", name]
        command += ["--seconds", str(share), "--seed", str(seed)]
        begun_s = time.monotonic()
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        took_s = time.monotonic() - begun_s
        executed = re.findall(r"number_of_executed_units: (\d+)", run.stderr)
        verdict = "ok" if run.returncode == 0 else f"FOUND SOMETHING (exit {run.returncode})"
        print(
            f"{name:<10} {executed[-1] if executed else '?':>9} inputs {took_s:6.1f} s  {verdict}"
        )
        if run.returncode != 0:
            failed += 1
            # libFuzzer's lines about its progress begin with #.
            told = [line for line in run.stderr.splitlines() if not line.startswith("#")]
            print(run.stdout[-2000:], *told[-60:], sep="\n")
            for path in FOUND.glob(f"{name}-*"):
                print(f"repeat: python -m tests.fuzz.soak --target {name} --replay {path}")
    return 1 if failed else 0


def replay(name: str, path: Path) -> None:
    from .targets import TARGETS

    TARGETS[name](path.read_bytes())


def fuzz(name: str, seconds: int, seed: int) -> None:
    """Search in this process; does not return when libFuzzer does it."""
    if importlib.util.find_spec("atheris") is None:
        fuzz_blindly(name, seconds, seed)
        return
    import atheris

    with atheris.instrument_imports(include=["segbroker"]):
        from . import seeds
        from .targets import TARGETS

    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(seeds.of_target(name)):
            Path(corpus, f"seed-{number}").write_bytes(data)
        words = [
            sys.argv[0],
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-max_len={INPUT_SIZE_MAX}",
            f"-rss_limit_mb={MEMORY_MAX_MIB}",
            f"-timeout={ONE_INPUT_MAX_S}",
            f"-artifact_prefix={FOUND}{os.sep}{name}-",
            "-print_final_stats=1",
            corpus,
        ]
        atheris.Setup(words, TARGETS[name])
        atheris.Fuzz()


def fuzz_blindly(name: str, seconds: int, seed: int) -> None:
    from . import seeds
    from .targets import TARGETS

    random = Random(seed)
    inputs = seeds.of_target(name)
    deadline_s = time.monotonic() + seconds
    executed = 0
    while time.monotonic() < deadline_s:
        data = mutated(random, inputs)
        executed += 1
        try:
            TARGETS[name](data)
        except BaseException:
            (FOUND / f"{name}-seed-{seed}-{executed}").write_bytes(data)
            raise
    print(f"stat::number_of_executed_units: {executed}", file=sys.stderr)


def mutated(random: Random, inputs: Sequence[bytes]) -> bytes:
    """One of the inputs after up to four edits."""
    data = bytearray(random.choice(inputs))
    for _ in range(random.randrange(5)):
        position = random.randrange(len(data) + 1)
        size = random.choice((1, 1, 2, 4, 8))
        data[position : position + random.choice((0, size))] = random.randbytes(size)
    return bytes(data)


if __name__ == "__main__":
    sys.exit(main())
