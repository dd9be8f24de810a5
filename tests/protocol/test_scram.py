"""SCRAM and PLAIN: the RFCs' own examples, and what a hostile side may say."""

import base64
import hashlib
import hmac
import re
from base64 import b64decode, b64encode

import pytest

from segbroker.protocol import scram
from segbroker.protocol.errors import RemoteProtocolError
from segbroker.protocol.sasl import check_user_name, decode_plain, encode_plain
from segbroker.protocol.scram import (
    ScramClient,
    ScramMechanism,
    ScramServer,
    is_password,
    make_credential,
    parse_client_first,
)

SHA_256 = ScramMechanism.SHA_256

# RFC 7677, section 3.
NONCE = b64decode("rOprNGfwEbeRWgbNEkqO" + "0000")[:15]
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(password: str = "pencil") -> ScramClient:
    return ScramClient(SHA_256, "user", password, NONCE)


def test_the_client_says_what_the_rfc_has_it_say() -> None:
    one = client()
    assert one.first() == CLIENT_FIRST
    assert one.answer(CHALLENGE) == CLIENT_FINAL
    assert one.verify(SERVER_FINAL)


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    one = client()
    one.answer(CHALLENGE)
    assert not one.verify(b"v=" + b64encode(bytes(32)))
    assert not one.verify(b"e=other-error")


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_both_sides_agree_on_the_right_password_only(mechanism: ScramMechanism) -> None:
    credential = make_credential(mechanism, "pencil", b"salt" * 4, 4096)
    for password in ("pencil", "pencil2", ""):
        one = ScramClient(mechanism, "us=er,", password, b"n" * 18)
        first = parse_client_first(one.first())
        assert first.user == "us=er,"
        server = ScramServer(mechanism, first, credential, b"s" * 18)
        answer = server.finish(one.answer(server.challenge()))
        assert (answer is not None) == (password == "pencil")
        assert answer is None or one.verify(answer)
        assert is_password(mechanism, credential, password) == (password == "pencil")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,r=rOprNGfwEbeRWgbNEkqO,n=user",
        b"n,,n=,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=user,r=short",
        b"p=tls-unique,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"n,a=admin,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=us=er,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=\xff,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,m=must,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=user,r=" + b"r" * 20_000,
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_client_first(message)


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (rb"c=[^,]*", b"c=eSws"),  # "y,,": another header than the first message had
        (rb"r=[^,]*", b"r=rOprNGfwEbeRWgbNEkqO"),
        (rb"p=....", b"p=****"),
        (rb"p=....", b"p="),
        (rb",p=", b",x="),
        (rb".*", b""),
    ],
)
def test_a_last_message_that_does_not_follow_the_first_is_refused(
    pattern: bytes, replacement: bytes
) -> None:
    credential = make_credential(SHA_256, "pencil", b"salt", 4096)
    one = client()
    server = ScramServer(SHA_256, parse_client_first(one.first()), credential, b"s" * 18)
    final = one.answer(server.challenge())
    assert server.finish(final) is not None
    with pytest.raises(RemoteProtocolError):
        server.finish(re.sub(pattern, replacement, final, count=1))


def test_a_nonce_that_begins_twice_is_taken_as_old_librdkafka_sends_it() -> None:
    credential = make_credential(SHA_256, "pencil", b"salt", 4096)
    first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server = ScramServer(SHA_256, parse_client_first(first), credential, b"s" * 18)
    nonce = server.challenge().partition(b",")[0].removeprefix(b"r=")
    for sent, is_good in ((b"rOprNGfwEbeRWgbNEkqO" + nonce, True), (nonce + b"x", False)):
        without_proof = b"c=biws,r=" + sent
        signed = b",".join((first.removeprefix(b"n,,"), server.challenge(), without_proof))
        salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        stored_key = hashlib.sha256(client_key).digest()
        signature = hmac.digest(stored_key, signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        final = without_proof + b",p=" + base64.b64encode(proof)
        if is_good:
            assert server.finish(final) is not None
        else:
            with pytest.raises(RemoteProtocolError, match="nonce"):
                server.finish(final)


@pytest.mark.parametrize("iterations", [b"0", b"1", b"4095", b"1048577", b"99999999999", b"-1"])
def test_a_challenge_that_is_too_cheap_or_too_dear_is_not_computed(iterations: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="iterations"):
        client().answer(CHALLENGE.replace(b"4096", iterations))


def test_a_challenge_with_a_nonce_of_somebody_else_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="nonce"):
        client().answer(CHALLENGE.replace(b"rOpr", b"XOpr"))
    with pytest.raises(RemoteProtocolError, match="nonce"):
        client().answer(b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")


def test_the_clients_nonce_may_come_twice_as_old_librdkafka_sends_it() -> None:
    credential = make_credential(SHA_256, "pencil", b"salt", 4096)
    one = client()
    server = ScramServer(SHA_256, parse_client_first(one.first()), credential, b"s" * 18)
    # What is signed is what was sent, so the proof is made over the repeated nonce, too.
    doubled = server.challenge().replace(b"r=", b"r=rOprNGfwEbeRWgbNEkqO", 1)
    final = one.answer(doubled)
    assert b"r=rOprNGfwEbeRWgbNEkqOrOprNGfwEbeRWgbNEkqO" in final
    assert server.finish(final) is None  # another challenge was signed: in order, and wrong


def test_what_is_kept_and_what_logs_in_hide_their_secrets() -> None:
    credential = make_credential(SHA_256, "pencil", b"salt", 4096)
    shown = repr(credential) + repr(client()) + repr(decode_plain(encode_plain("u", "pencil")))
    assert "pencil" not in shown
    assert repr(credential.stored_key) not in shown


def test_plain_is_read_as_it_is_written() -> None:
    assert decode_plain(encode_plain("alice", "se,cret=")) == ("alice", "se,cret=")
    assert decode_plain(b"alice\0alice\0secret") == ("alice", "secret")


@pytest.mark.parametrize(
    "message",
    [b"", b"\0\0", b"\0alice\0", b"\0\0secret", b"alice", b"admin\0alice\0secret", b"\0a\0b\0c",
     b"\0\xff\0x", b"\0a\0" + b"b" * 20_000],
)  # fmt: skip
def test_a_plain_message_that_is_none_is_refused_without_repeating_it(message: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_plain(message)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a" * 256, "a\nb", "a\0b", "\x1b[31m"])
def test_a_name_that_could_not_be_shown_or_stored_is_no_users(name: str) -> None:
    with pytest.raises(ValueError, match="user name"):
        check_user_name(name)


def test_iterations_are_bounded_as_in_kafka() -> None:
    assert (scram.ITERATIONS_MIN, scram.ITERATIONS_MAX) == (4096, 16384)
