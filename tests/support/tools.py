"""Programs of other people that tests run: found, or installed from Debian, or skipped aloud."""

import os
import shutil
import subprocess
from functools import cache

import pytest

INSTALL_TIMEOUT_S = 300


@cache
def _install(package: str) -> str:
    """Why the package is not there, or an empty string."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get"
    if os.geteuid() != 0:
        return "installing it needs root"
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", package]):
        run = subprocess.run(command, capture_output=True, timeout=INSTALL_TIMEOUT_S, env=quiet)
        if run.returncode != 0:
            return f"{' '.join(command)} failed: {run.stderr.decode()[-200:]}"
    return ""


def require(program: str, package: str | None = None) -> str:
    """The path of a program, installed if need be.

    A machine that can install it never skips; elsewhere the skip says what is missing.
    """
    path = shutil.which(program)
    if path is None:
        problem = _install(package or program)
        path = shutil.which(program)
        if path is None:
            pytest.skip(f"{program} is not installed and {problem}")
    return path
