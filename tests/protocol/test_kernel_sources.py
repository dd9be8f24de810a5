"""The kernel's C compiles without a warning.

What an older compiler warns of a newer one refuses: since GCC 14 and Clang 16 it is an error to
call what no header has declared, and with it the whole installation fails.
"""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "protocol" / "native"
HEADERS = Path(sysconfig.get_paths()["include"])
COMPILER = (sysconfig.get_config_var("CC") or "cc").split()
STRICT = ("-fsyntax-only", "-O2", "-Wall", "-Wextra", "-Werror")


@pytest.mark.skipif(
    shutil.which(COMPILER[0]) is None or not (HEADERS / "Python.h").exists(),
    reason="there is no C compiler here, or Python without its headers",
)
@pytest.mark.parametrize("source", sorted(NATIVE.glob("*.c")), ids=lambda path: path.name)
def test_a_source_of_the_kernel_compiles_without_a_warning(source: Path) -> None:
    command = [*COMPILER, *STRICT, f"-I{HEADERS}", f"-I{NATIVE}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
