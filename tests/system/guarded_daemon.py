"""A daemon that denies what no access rule allows; its administrator logs in by SCRAM."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..support.daemon import Daemon, running

ADMIN = "admin"
PASSWORD = "correct horse"


@contextmanager
def running_guarded(folder: Path) -> Iterator[Daemon]:
    """One with its data in `folder`; ADMIN, a super user, has PASSWORD and nobody else is known."""
    config = folder / "segbroker.toml"
    config.write_text(f'initial_password = "{PASSWORD}"\n')
    flags = (
        f"--config={config}",
        "--listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "--authorizer=acl",
        f"--super-users=User:{ADMIN}",
        f"--initial-user={ADMIN}",
    )
    with running(folder / "data", *flags) as daemon:
        yield daemon
