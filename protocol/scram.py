"""SCRAM (RFC 5802, RFC 7677): a password is proven, in both directions, and never sent.

    client                                       server
      n,,n=USER,r=CNONCE            --------->     looks up salt, iterations, StoredKey, ServerKey
                                    <---------   r=CNONCE+SNONCE,s=SALT,i=ITERATIONS
      c=biws,r=CNONCE+SNONCE,p=PROOF --------->    H(PROOF xor ClientSignature) = StoredKey ?
      knows ServerSignature?        <---------   v=SERVERSIGNATURE

    SaltedPassword  = PBKDF2(password, salt, iterations)
    ClientKey       = HMAC(SaltedPassword, "Client Key")     StoredKey = H(ClientKey)
    ServerKey       = HMAC(SaltedPassword, "Server Key")
    ClientSignature = HMAC(StoredKey, AuthMessage)           PROOF = ClientKey xor ClientSignature
    ServerSignature = HMAC(ServerKey, AuthMessage)
    AuthMessage     = client-first-bare , server-first , client-final-without-proof

Nonces come in as parameters: nothing here knows chance.  Channel binding (the -PLUS variants) is
not offered; a client that demands it is refused.  Passwords are their UTF-8 bytes, without the
normalisation that the RFC proposes (SASLprep): neither Kafka nor librdkafka does it, and who is to
be compatible with them must not either.

Invariant: keys and proofs are compared in constant time.
"""

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from enum import IntEnum
from typing import Final, NamedTuple

from .errors import RemoteProtocolError
from .sasl import SASL_MESSAGE_SIZE_MAX

ITERATIONS_MIN: Final = 4_096
"""RFC 7677; Kafka refuses fewer too."""
ITERATIONS_MAX: Final = 16_384
"""Of a stored credential, as in Kafka: each login costs the client so many."""
ITERATIONS_DEFAULT: Final = 8_192
"""Of a credential that our tools make, unless one says another number."""
ITERATIONS_TAKEN_MAX: Final = 1 << 20
"""What our client computes at most for a server that it does not know yet."""
NONCE_SIZE: Final = 18
"""Random bytes of a nonce."""
SALT_SIZE: Final = 16
SALT_SIZE_MAX: Final = 256
_NO_BINDING: Final = (b"n", b"y")


class ScramMechanism(IntEnum):
    """The two hash functions; the numbers are those of AlterUserScramCredentials."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def label(self) -> str:
        """As SaslHandshake and people write it."""
        return f"SCRAM-SHA-{256 * self.value}"

    @property
    def hash_name(self) -> str:
        """As hashlib has it."""
        return f"sha{256 * self.value}"

    @property
    def digest_size(self) -> int:
        """Bytes of a key."""
        return 32 * self.value


MECHANISMS: Final = {mechanism.label: mechanism for mechanism in ScramMechanism}


class ScramCredential(NamedTuple):
    """What a server keeps of a password: enough to check it, not enough to log in with."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, keys=<hidden>)"


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """PBKDF2: milliseconds of computing, by intention."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """What is kept of a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    server_key = _hmac(mechanism, salted, b"Server Key")
    return ScramCredential(salt, iterations, stored_key, server_key)


def make_credential(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> ScramCredential:
    """What is kept of a password."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def is_password(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Whether this is the password of the credential: for PLAIN."""
    made = make_credential(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)


class ClientFirst(NamedTuple):
    """The client's first message, taken apart."""

    header: bytes
    bare: bytes
    user: str
    nonce: bytes


def parse_client_first(message: bytes) -> ClientFirst:
    """Raises RemoteProtocolError."""
    _check_size(message)
    parts = message.split(b",", 2)
    if len(parts) != 3 or parts[0] not in _NO_BINDING:
        raise RemoteProtocolError("a SCRAM message that begins with channel binding or nonsense")
    header = parts[0] + b"," + parts[1] + b","
    attributes = _attributes(parts[2])
    if [name for name, _ in attributes[:2]] != [b"n", b"r"]:
        raise RemoteProtocolError("a first SCRAM message without user name and nonce")
    user, nonce = attributes[0][1], attributes[1][1]
    if not user or not nonce or len(nonce) < 8:
        raise RemoteProtocolError("a first SCRAM message with an empty name or a short nonce")
    if parts[1] and parts[1] != b"a=" + user:
        raise RemoteProtocolError("a SCRAM message that asks to act for another user")
    return ClientFirst(header, parts[2], _unescape(user), nonce)


class ScramServer:
    """One exchange on the server's side: `challenge`, then `finish`."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        first: ClientFirst,
        credential: ScramCredential,
        nonce: bytes,
    ) -> None:
        """`nonce`: fresh random bytes. `credential`: the user's, or a made-up one."""
        self._mechanism = mechanism
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + b64encode(nonce)
        self._challenge = b"r=%s,s=%s,i=%d" % (
            self._nonce,
            b64encode(credential.salt),
            credential.iterations,
        )

    def challenge(self) -> bytes:
        """The server's first message."""
        return self._challenge

    def finish(self, message: bytes) -> bytes | None:
        """The server's last message, or None: the proof is wrong.  Raises RemoteProtocolError."""
        _check_size(message)
        without_proof, comma, proof_text = message.rpartition(b",p=")
        attributes = dict(_attributes(without_proof)) if comma else {}
        if attributes.get(b"c") != b64encode(self._first.header):
            raise RemoteProtocolError("a last SCRAM message with another header than the first")
        # librdkafka before 2.6.1 puts its part in front once more (its issue 4895).  The proof
        # covers what was sent, so nothing is weaker for it.  Kafka takes it no more (3.9.0).
        if not attributes.get(b"r", b"").endswith(self._nonce):
            raise RemoteProtocolError("a last SCRAM message with another nonce")
        proof = _decode(proof_text)
        if len(proof) != self._mechanism.digest_size:
            raise RemoteProtocolError(f"a SCRAM proof of {len(proof)} bytes")
        signed = b",".join((self._first.bare, self._challenge, without_proof))
        signature = _hmac(self._mechanism, self._credential.stored_key, signed)
        client_key = _xor(proof, signature)
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        if not hmac.compare_digest(stored_key, self._credential.stored_key):
            return None
        verifier = _hmac(self._mechanism, self._credential.server_key, signed)
        return b"v=" + b64encode(verifier)


class ScramClient:
    """One exchange on the client's side: `first`, `answer`, then `verify`."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        nonce: bytes,
        known: "dict[tuple[bytes, int], bytes] | None" = None,
    ) -> None:
        """`known`: salted passwords of earlier exchanges of this user, by salt and iterations."""
        self._mechanism = mechanism
        self._password = password
        self._known = {} if known is None else known
        self._nonce = b64encode(nonce)
        self._bare = b"n=%s,r=%s" % (_escape(user), self._nonce)
        self._verifier = b""

    def __repr__(self) -> str:
        return f"<ScramClient {self._mechanism.label}>"

    def first(self) -> bytes:
        """The client's first message."""
        return b"n,," + self._bare

    def answer(self, challenge: bytes) -> bytes:
        """The client's last message; milliseconds of computing.  Raises RemoteProtocolError."""
        _check_size(challenge)
        attributes = _attributes(challenge)
        if [name for name, _ in attributes[:3]] != [b"r", b"s", b"i"]:
            raise RemoteProtocolError("a SCRAM challenge without nonce, salt and iterations")
        nonce, salt_text, iterations_text = (value for _, value in attributes[:3])
        if not nonce.startswith(self._nonce) or len(nonce) <= len(self._nonce):
            raise RemoteProtocolError("a SCRAM challenge to another nonce than ours")
        if not iterations_text.isdigit() or len(iterations_text) > 9:
            raise RemoteProtocolError("a SCRAM challenge whose iterations are no number")
        iterations = int(iterations_text)
        # Few would let whoever stands in between guess the password cheaply; many would stop us.
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_TAKEN_MAX:
            raise RemoteProtocolError(
                f"a SCRAM challenge of {iterations} iterations, allowed are"
                f" {ITERATIONS_MIN} to {ITERATIONS_TAKEN_MAX}"
            )
        salt = _decode(salt_text)
        salted = self._known.get((salt, iterations))
        if salted is None:
            salted = salted_password(self._mechanism, self._password, salt, iterations)
            self._known.clear()  # the one of before, if the password was set anew
            self._known[salt, iterations] = salted
        credential = credential_of(self._mechanism, salted, salt, iterations)
        without_proof = b"c=%s,r=%s" % (b64encode(b"n,,"), nonce)
        signed = b",".join((self._bare, challenge, without_proof))
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        signature = _hmac(self._mechanism, credential.stored_key, signed)
        self._verifier = _hmac(self._mechanism, credential.server_key, signed)
        return without_proof + b",p=" + b64encode(_xor(client_key, signature))

    def verify(self, message: bytes) -> bool:
        """Whether the server has proven that it knows the password too."""
        _check_size(message)
        attributes = dict(_attributes(message))
        if b"v" not in attributes or not self._verifier:
            return False
        return hmac.compare_digest(_decode(attributes[b"v"]), self._verifier)


def _check_size(message: bytes) -> None:
    if len(message) > SASL_MESSAGE_SIZE_MAX:
        raise RemoteProtocolError(
            f"a SASL message of {len(message)} bytes, limit {SASL_MESSAGE_SIZE_MAX}"
        )


def _attributes(text: bytes) -> list[tuple[bytes, bytes]]:
    """`a=1,b=2` as pairs. An extension that must be understood ("m") is refused."""
    pairs = []
    for item in text.split(b","):
        name, equals, value = item.partition(b"=")
        if not equals or name == b"m":
            raise RemoteProtocolError("a SCRAM message with an attribute that is not known")
        pairs.append((name, value))
    return pairs


def _decode(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RemoteProtocolError("a SCRAM message with bad base64") from None


def _escape(name: str) -> bytes:
    return name.replace("=", "=3D").replace(",", "=2C").encode()


def _unescape(name: bytes) -> str:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("a SCRAM user name is not UTF-8") from None
    if text.count("=") != text.count("=2C") + text.count("=3D"):
        raise RemoteProtocolError("a SCRAM user name with an escape that does not exist")
    return text.replace("=2C", ",").replace("=3D", "=")


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
