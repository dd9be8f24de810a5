"""The kernel's tests on a kernel with sanitizers: `make asan`.

A mistake in the C code ends the process with the sanitizer's report, so what runs here are the
ordinary tests.  PYTHONPATH has put the package of build/asan before the installed one; were that
to fail, the tests would pass and prove nothing, hence the check.
"""

import os
import sys
from pathlib import Path

from segbroker.protocol import _kernel

TESTS = (
    "tests/protocol/test_batch_parity.py",
    "tests/protocol/test_checksums.py",
    "tests/broker/test_exchange.py",
    "tests/client/test_handout.py",
    "tests/client/test_pending.py",
    "tests/client/test_records.py",
    "tests/protocol/test_kernel_objects.py",
    "tests/protocol/test_produce_scan.py",
    "tests/protocol/test_record_batch.py",
    "tests/fuzz/test_targets.py",
)


def main() -> None:
    place = Path(_kernel.__file__)
    assert place.parts[-5:-3] == ("build", "asan"), f"the kernel without sanitizers runs: {place}"
    assert b"__asan_init" in place.read_bytes(), f"{place} was built without AddressSanitizer"
    print(f"kernel: {place}")
    # -p no:cacheprovider: the next ordinary run should not begin with what failed here.
    words = ["-q", "-p", "no:cacheprovider", "-o", "timeout=600", "-k", "not directory", *TESTS]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *words])


if __name__ == "__main__":
    main()
