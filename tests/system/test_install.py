"""Installing: from the source distribution, with a C compiler and without one.

The builds run on a copy, so that the editable install of the checkout stays as it is, and
without isolation, so that they need no network.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from segbroker.protocol import kernel

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".*", "build", "dist", "*.egg-info", "*.so", "_kernel.c", "__pycache__", "demo-data"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Batches go round, and a folder says where the package came from.
USE = """
from segbroker.protocol import kernel
from segbroker.protocol.record_batch import Codec, check_batch, decode_batch, encode_batch
for codec in Codec:
    batch = encode_batch([b"one", None], keys=[b"k", None], timestamps_ms=5, codec=codec)
    assert check_batch(batch).records_count == 2
    assert decode_batch(batch).values() == [b"one", None]
print(kernel.__file__, kernel.KERNEL_IS_NATIVE)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(what: str, source: Path, out: Path, **environment: str) -> Path:
    run(
        *(sys.executable, "-m", "build", f"--{what}", "--no-isolation", "--outdir", out, source),
        cwd=out.parent,
        **environment,
    )
    (result,) = out.iterdir()
    return result


def use(wheel: Path, folder: Path) -> list[str]:
    """What USE prints when only this wheel is found under the name segbroker."""
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-index", "--target", folder, wheel),
        cwd=folder.parent,
    )
    return run(sys.executable, "-c", USE, cwd=folder.parent, PYTHONPATH=str(folder)).split()


@pytest.fixture(scope="module")
def unpacked_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, as a packager finds it."""
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "checkout", ignore=LEFT_OUT)
    jars = folder / "checkout" / "spark" / "jars"
    jars.mkdir(exist_ok=True)
    (jars / "segbroker-spark.jar").touch()  # as `make jar` leaves it, where there is a javac
    sdist = build("sdist", folder / "checkout", folder / "dist")
    shutil.unpack_archive(sdist, folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


@pytest.mark.skipif(not kernel.KERNEL_IS_NATIVE, reason="no C compiler here")
def test_the_source_distribution_builds_one_wheel_for_every_python(
    unpacked_sdist: Path, tmp_path: Path
) -> None:
    wheel = build("wheel", unpacked_sdist, tmp_path / "dist", CFLAGS="-O0")
    assert "-cp311-abi3-" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "segbroker/protocol/_kernel.abi3.so",
        "segbroker/protocol/_kernel.pyi",
        "segbroker/protocol/py.typed",
        "segbroker/client/__init__.py",
        "segbroker/spark/jars/segbroker-spark.jar",
    } <= names
    assert not [name for name in names if name.startswith(("tests", "bench", "protocol/"))]
    file, native = use(wheel, tmp_path / "target")
    assert file.startswith(str(tmp_path))
    assert native == "True"


def test_without_a_compiler_the_package_installs_and_works_on_the_pure_twin(
    unpacked_sdist: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(unpacked_sdist, source)
    wheel = build("wheel", source, tmp_path / "dist", CC="/bin/false")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    file, native = use(wheel, tmp_path / "target")
    assert file.startswith(str(tmp_path))
    assert native == "False"
