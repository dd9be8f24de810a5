"""A PATH as on a machine without Java: the usual small programs, and no java."""

import shutil
from pathlib import Path

PROGRAMS = (
    *("bash", "sh", "env", "cat", "chmod", "dirname", "basename", "ps", "uname", "hostname"),
    *("sed", "grep", "ls", "ln", "mkdir", "rm", "readlink", "id", "nice", "tr"),
)


def path_without_java(folder: Path) -> Path:
    """A new folder, to be all of PATH, in which only PROGRAMS are found."""
    folder.mkdir()
    for program in PROGRAMS:
        found = shutil.which(program)
        if found is not None:
            (folder / program).symlink_to(found)
    assert shutil.which("java", path=str(folder)) is None
    return folder
