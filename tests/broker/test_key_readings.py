"""How signing keys are read: from an address that is slow on purpose, or away, or in clear."""

import json
import os
import threading
from pathlib import Path

import pytest
import trio

from segbroker.broker.access.key_reading import KeysUnavailable, read_keys
from segbroker.broker.access.key_source import KeySource
from segbroker.broker.configuration.config import merge

from ..support.certificates import Authority
from ..support.dripping import (
    IN_A_CHUNK_SIZE,
    IN_A_HEADER,
    IN_AN_ERROR,
    IN_THE_BODY,
    dripping,
)
from ..support.issuer import EXPECTED, Issuer
from .conftest import Events


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("begin", [IN_A_HEADER, IN_A_CHUNK_SIZE, IN_THE_BODY, IN_AN_ERROR])
def test_a_byte_now_and_then_holds_no_reading_for_ever(
    tmp_path: Path, begin: bytes, tls: bool
) -> None:
    authority = Authority(tmp_path)
    told: list[str] = []

    def read(url: str) -> None:
        try:
            read_keys(url, str(authority.file), 0.3)
        except KeysUnavailable as exc:
            told.append(str(exc))

    with dripping(begin, authority.server() if tls else None) as server:
        thread = threading.Thread(target=read, args=(server.url,), daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
    assert told in (["not read within 0.3 s"], ["HTTP status 503"])


async def test_keys_are_read_again_when_an_address_drips_no_more() -> None:
    """The one thread that reads was held by the first answer, also when the next was a good one."""
    issuer = Issuer()
    with dripping(IN_A_HEADER) as server:
        config = merge(
            {
                **EXPECTED,
                "sasl_oauthbearer_jwks_endpoint_url": server.url,
                "sasl_oauthbearer_jwks_endpoint_timeout_ms": 2_000,  # a slow machine answers in it
            }
        )
        source = KeySource(config)
        await source.refresh()
        assert source.keys is None
        assert source.error
        server.body = issuer.jwks()
        with trio.fail_after(60):
            while source.keys is None:
                await source.refresh()
        assert source.keys.names == {"first"}


async def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    """The one thread that reads would be held by it, also when there is a file again."""
    issuer, path = Issuer(), tmp_path / "keys"
    path.write_bytes(issuer.jwks())
    config = {**EXPECTED, "sasl_oauthbearer_jwks_endpoint_url": path.as_uri()}
    source = KeySource(merge({**config, "sasl_oauthbearer_jwks_endpoint_timeout_ms": 60_000}))
    await source.start()
    before = source.keys
    path.unlink()
    os.mkfifo(path)
    with trio.fail_after(30):
        await source.refresh()
    assert source.error == "it is a pipe, which cannot be read again"
    assert source.keys is before
    path.unlink()
    issuer.rotate("second")
    path.write_bytes(issuer.jwks())
    await source.refresh()
    assert source.keys is not None
    assert (source.error, source.keys.names) == ("", {"second"})


async def test_nor_is_one_in_the_place_of_the_authorities(tmp_path: Path) -> None:
    pipe = tmp_path / "authorities"
    os.mkfifo(pipe)
    source = KeySource(
        merge(
            {
                **EXPECTED,
                "sasl_oauthbearer_jwks_endpoint_url": "https://127.0.0.1:1/keys",
                "sasl_oauthbearer_jwks_endpoint_ca": str(pipe),
                "sasl_oauthbearer_jwks_endpoint_timeout_ms": 60_000,
            }
        )
    )
    with trio.fail_after(30):
        await source.refresh()
    assert source.error == (
        f"sasl_oauthbearer_jwks_endpoint_ca ({pipe}): not PEM, or without a certificate"
    )


async def test_the_keys_that_are_not_used_are_told(tmp_path: Path, events: Events) -> None:
    """Who has a token by one of them is told that it is not known: it is in the set."""
    good = json.loads(Issuer().jwks())["keys"][0]
    rows = [good, good | {"use": "enc", "kid": "for-encryption"}, {"kty": "oct", "k": "c2VjcmV0"}]
    (tmp_path / "keys").write_text(json.dumps({"keys": rows}))
    url = (tmp_path / "keys").as_uri()
    source = KeySource(merge({**EXPECTED, "sasl_oauthbearer_jwks_endpoint_url": url}))
    await source.start()
    (line,) = events.named("signing_keys_read")
    assert line["left_out"] == [
        "key 1 (kid 'for-encryption'): it is not for signatures",
        "key 2: kty 'oct' is none of RSA, EC, OKP",
    ]
    assert "c2VjcmV0" not in str(line)
