"""Root at a data directory of another user acts as that user.

    segbroker user add alice --data-dir /var/lib/segbroker     # run by root

A broker opens its files as its own user, so one file there that root made keeps it from starting.
Whose directory it is says LOCK, which the first broker on it made; before there is one, the
directory.  Where that user cannot get at it no broker of his runs on it (a backup below /root), and
root stays root.
"""

import os
from pathlib import Path

from .exit_codes import ExitCode
from .failures import Failure

ROOT = 0


def act_as_owner(directory: Path) -> None:
    """Be who `directory` belongs to from now on, if this is root and he is not.

    Whatever is imported later has to be readable for him.  Raises Failure: root may not.
    """
    if os.geteuid() != ROOT:
        return
    owner = _owner(directory)
    if owner is None or owner.st_uid == ROOT:
        return
    groups, group = os.getgroups(), os.getegid()
    try:
        os.setgroups([])
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
    except OSError as exc:
        text = f"{directory} belongs to user {owner.st_uid}, and root may not act as that user"
        raise Failure(text, ExitCode.SYSTEM, "run this command as that user") from exc
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        os.seteuid(ROOT)
        os.setegid(group)
        os.setgroups(groups)


def _owner(directory: Path) -> os.stat_result | None:
    for path in (directory / "LOCK", directory):
        try:
            return path.lstat()
        except OSError:
            continue  # not there, or not to be looked at: the opening says so
    return None
