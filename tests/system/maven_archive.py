"""Programs that Maven Central has as an archive: fetched and unpacked once, and kept."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from ..support.releases import alone
from ..support.tools import require

FETCH_S: Final = 600.0
# The last release of the plugin that asks for nothing but the file.
_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"


def unpacked(artifact: str, cache: Path) -> Path:
    """The folder of an archive, as it was packed; skips where it cannot be had.

    Args:
        artifact: group:name:version:type, or with a classifier behind the type; the type is zip or
            tar.gz.
        cache: where it is kept.
    """
    maven = require("mvn", "maven")
    _, name, version, kind, *_ = artifact.split(":")
    place = cache / f"{name}-{version}"
    with alone(place):
        if not place.exists():
            unfinished = place.with_name(f"{place.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            command = [maven, "-q", "-B", _GOAL, f"-Dartifact={artifact}"]
            command += ["-Dtransitive=false", f"-Ddest={unfinished}"]
            run = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S)
            if run.returncode != 0:
                pytest.skip(f"{artifact} cannot be had: {run.stdout.strip()[-300:]}")
            (archive,) = unfinished.glob(f"*.{kind}")
            shutil.unpack_archive(archive, unfinished)
            archive.unlink()
            unfinished.rename(place)
    return place
