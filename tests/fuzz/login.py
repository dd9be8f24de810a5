"""The fuzz target `login`: any SASL messages, to the login of a connection and to a client's.

    byte 0    PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, as a challenge to a client, or OAUTHBEARER
    then      messages, each with two bytes of length in front

What must hold:

- each message has an answer of bytes, or the login is refused; a refusal tells the peer one and the
  same sentence, whatever was wrong; of a token it is told in the same words before and after
- who is in has said the user's name and password, or proven it, or has a token: noise never is
- a client answers a challenge or refuses it (RemoteProtocolError), and believes no server that does
  not know the password
"""

import json
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from segbroker.broker.access.bearer_tokens import TokenRules
from segbroker.broker.access.signing_keys import SigningKeys
from segbroker.broker.configuration.config import merge
from segbroker.broker.peers.bearer import Bearer
from segbroker.broker.peers.sasl import WRONG, LoginRefused, SaslSession, Stage
from segbroker.protocol.errors import RemoteProtocolError
from segbroker.protocol.oauthbearer import OAUTHBEARER, encode_bearer
from segbroker.protocol.sasl import PLAIN, SASL_MESSAGE_SIZE_MAX, encode_plain
from segbroker.protocol.scram import (
    MECHANISMS,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    make_credential,
)

NAME: Final = "alice"
PASSWORD: Final = "wonderland"
NONCE: Final = b"a nonce of a test, the same each"
CHOICES: Final = (PLAIN, *MECHANISMS, "client", OAUTHBEARER)
MESSAGES_MAX: Final = 4
_CREDENTIALS: Final = {
    mechanism: make_credential(mechanism, PASSWORD, b"salt of sixteen.", 4_096)
    for mechanism in ScramMechanism
}
_KEY: Final = ec.derive_private_key(7, ec.SECP256R1())
_ROW: Final = jwt.algorithms.ECAlgorithm.to_jwk(_KEY.public_key(), as_dict=True)
_KEYS: Final = SigningKeys(json.dumps({"keys": [_ROW | {"kid": "k"}]}).encode())
_RULES: Final = TokenRules(
    merge(
        {
            "sasl_oauthbearer_expected_issuer": "issuer",
            "sasl_oauthbearer_expected_audience": "segbroker",
        }
    )
)
_CLAIMS: Final = {"iss": "issuer", "aud": "segbroker", "sub": NAME, "exp": 9_999_999_999}
TOKEN: Final = jwt.encode(_CLAIMS, _KEY, "ES256", {"kid": "k"})


class _Users:
    """One user."""

    async def bearer(self, token: str, host: str) -> Bearer:
        return _RULES.verify(token, _RULES.head_of(token), _KEYS)

    async def is_password(self, name: str, password: str, host: str) -> bool:
        return (name, password) == (NAME, PASSWORD)

    def credential(self, name: str, mechanism: ScramMechanism) -> tuple[ScramCredential, bool]:
        return _CREDENTIALS[mechanism], name == NAME

    def random(self, size: int) -> bytes:
        return NONCE[:size]


def login(data: bytes) -> None:
    if not data:
        return
    choice, messages = CHOICES[data[0] % len(CHOICES)], _messages(data[1:])
    if choice == "client":
        _as_challenges(messages)
    else:
        _as_answers(choice, messages)


def framed(choice: str, *messages: bytes) -> bytes:
    """An input."""
    parts = (len(one).to_bytes(2, "big") + one for one in messages)
    return bytes([CHOICES.index(choice)]) + b"".join(parts)


def seeds() -> list[bytes]:
    """Whole logins, right and wrong, and challenges."""
    found = [framed(PLAIN, encode_plain(NAME, password)) for password in (PASSWORD, "guess")]
    found.append(framed(PLAIN, b"\0alice"))
    others = [jwt.encode(_CLAIMS | changed, _KEY, "ES256") for changed in ({"exp": 1}, {"sub": 1})]
    found += [
        framed(OAUTHBEARER, encode_bearer(token, {"key": "value"}), b"\x01")
        for token in (TOKEN, TOKEN[:-9], "a.b.c", TOKEN.replace(".", ".e30", 1), *others)
    ]
    for label, mechanism in MECHANISMS.items():
        for name in (NAME, "nobody", "a=b,c"):
            client = ScramClient(mechanism, name, PASSWORD, NONCE)
            challenge = _challenge(label, client.first())
            found.append(framed(label, client.first(), client.answer(challenge)))
        found.append(framed("client", challenge, b"v=AAAA"))
    return found


def _challenge(label: str, first: bytes) -> bytes:
    session = SaslSession("127.0.0.1")
    assert session.choose(label, raw=False)
    return _proven(session, first)


def _messages(data: bytes) -> list[bytes]:
    found: list[bytes] = []
    while len(data) >= 2 and len(found) < MESSAGES_MAX:
        size = int.from_bytes(data[:2], "big")
        found.append(data[2 : 2 + size])
        data = data[2 + size :]
    return found


def _proven(session: SaslSession, message: bytes) -> bytes:
    """What `prove` returns: nothing here waits, so one step is all of it."""
    try:
        session.prove(_Users(), message).send(None)
    except StopIteration as end:
        answer: bytes = end.value
        return answer
    raise AssertionError("a login waits for something")


def _as_answers(mechanism: str, messages: list[bytes]) -> None:
    session = SaslSession("127.0.0.1")
    assert session.choose(mechanism, raw=False)
    told, refused = WRONG, b""
    for message in messages:
        try:
            answer = _proven(session, message)
        except LoginRefused as exc:
            told = exc.message
            if refused:
                words = f"Authentication failed: {refused.decode()}: the token is refused: "
                assert told.startswith(words), told
                told = WRONG
            break
        refused = answer if mechanism == OAUTHBEARER else b""
        assert len(answer) <= SASL_MESSAGE_SIZE_MAX
        if session.stage is Stage.DONE:
            assert session.user == NAME
            if mechanism == PLAIN:
                assert message.endswith(encode_plain(NAME, PASSWORD)), message
            if mechanism == OAUTHBEARER:
                assert TOKEN[:-2].encode() in message, message
            return
    assert told == WRONG, f"who is refused is told {told!r}"
    assert session.user is None, "somebody is in without a password"


def _as_challenges(messages: list[bytes]) -> None:
    for mechanism in ScramMechanism:
        client = ScramClient(mechanism, NAME, PASSWORD, NONCE)
        for message in messages[:1]:
            try:
                client.answer(message)
            except RemoteProtocolError:
                return
        for message in messages[1:2]:
            try:
                assert not client.verify(message), "noise was taken for a server's proof"
            except RemoteProtocolError:
                return
