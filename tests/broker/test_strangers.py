"""What a stranger cannot learn from how much work a login is."""

import hashlib

import pytest

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.scram import ScramMechanism

from ..support.wire_client import connect
from .test_login import SHA_256, delete, guarded, log_in, set_password

SHA_512 = ScramMechanism.SHA_512


async def test_a_password_costs_the_same_whether_its_user_exists_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work: list[tuple[str, int, int]] = []
    derive = hashlib.pbkdf2_hmac

    def noted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        work.append((name, len(salt), iterations))
        return derive(name, password, salt, iterations)

    async with guarded() as broker, connect(broker.listeners[1].bound) as admin:
        # As kafka-configs makes users that are to log in by SCRAM-SHA-512.
        assert await delete(admin, "alice", SHA_256) == 0
        assert await set_password(admin, "bob", "builder", mechanism=SHA_512) == 0
        assert await set_password(admin, "carol", "singer", mechanism=SHA_512) == 0
        monkeypatch.setattr(hashlib, "pbkdf2_hmac", noted)
        for user in ("bob", "mallory"):
            async with connect(broker.address) as client:
                last = await log_in(client, "PLAIN", user, "guessed")
                assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    of_bob, of_nobody = work
    assert of_nobody == of_bob
