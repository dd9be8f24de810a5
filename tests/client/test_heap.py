"""Memory that a producer frees and needs again is not fetched from the kernel each time."""

import platform
import subprocess
import sys

import pytest

from segbroker.client import AsyncProducer, Producer
from segbroker.client.heap import keep_freed_memory

from ..support.daemon import Daemon
from .conftest import Run

# Batches as a producer makes and frees them: eight of half a megabyte under way, a hundred times.
PROGRAM = """
import resource
from segbroker.client.heap import keep_freed_memory
if {kept}:
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def round_of_batches():
    return [bytes([1]) * (1 << 19) for _ in range(8)]
round_of_batches()
before = faults()
for _ in range(100):
    round_of_batches()
print(faults() - before)
"""


def faults(*, kept: bool) -> int:
    program = PROGRAM.format(kept=kept)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have own rules")
def test_batches_that_are_made_and_freed_again_and_again_are_made_of_the_same_pages() -> None:
    pages = 8 * (1 << 19) // 4096
    assert faults(kept=False) > 20 * pages
    assert faults(kept=True) < 2 * pages


def test_the_block_that_teaches_the_allocator_takes_no_memory() -> None:
    program = """
import resource
from segbroker.client.heap import KEPT_BYTES, keep_freed_memory
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    keep_freed_memory()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * 4096 * 10 < KEPT_BYTES)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stdout == b"True\n"


def test_every_producer_has_the_allocator_keep_it(daemon: Daemon) -> None:
    keep_freed_memory.cache_clear()
    with Producer(daemon.address):
        assert keep_freed_memory.cache_info().currsize == 1


def test_every_async_producer_has_the_allocator_keep_it(run: Run, daemon: Daemon) -> None:
    async def main() -> None:
        keep_freed_memory.cache_clear()
        async with AsyncProducer(daemon.address):
            assert keep_freed_memory.cache_info().currsize == 1

    run(main)
