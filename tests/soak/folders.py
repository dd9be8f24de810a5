"""The folder of a round: removed when nothing was found in it, told of and left otherwise."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TOLD_MAX: Final = 20


def put_away(folder: Path, *findings: Sequence[object], is_clean: bool) -> None:
    """Print the first of each kind of findings; remove the folder of a clean round."""
    for kind in findings:
        for finding in kind[:TOLD_MAX]:
            print(f"  {finding}", flush=True)
    if is_clean:
        shutil.rmtree(folder)
    else:
        print(f"  all that was written there stays in {folder}", flush=True)
