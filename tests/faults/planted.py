"""A daemon with a planted bug: `python planted.py <bug> <the command that starts a daemon>`.

    hurries    class disk is acknowledged, and written a moment later by a thread

For the proof of the harness: what the kill loop and the checker say of a broker that is wrong.
"""

import runpy
import sys
import threading
import time
from collections.abc import Callable

from segbroker.segments.posix import PosixFile
from segbroker.segments.storage import Buffer


def hurries() -> None:
    plain = PosixFile.pwrite

    def pwrite(self: PosixFile, data: Buffer, position: int) -> int:
        if "/written/" not in self.path or not self.path.endswith(".log"):
            return plain(self, data, position)
        content = bytes(data)

        def later() -> None:
            time.sleep(0.2)
            plain(self, content, position)

        threading.Thread(target=later, daemon=True).start()
        return len(content)

    PosixFile.pwrite = pwrite  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {"hurries": hurries}


if __name__ == "__main__":
    bug, _python, _minus_m, module, *arguments = sys.argv[1:]
    BUGS[bug]()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
