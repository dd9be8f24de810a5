"""One token, and one set of keys: whom it lets in, or why nobody."""

import base64
import hashlib
import hmac
import json
import random
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

from segbroker.broker.access.bearer_tokens import TokenRules
from segbroker.broker.access.key_reading import KeysUnavailable, read_keys
from segbroker.broker.access.signing_keys import SET_BYTES_MAX, SigningKeys, UnusableKeys
from segbroker.broker.configuration.config import BrokerConfig, merge
from segbroker.broker.peers.bearer import Bearer, TokenRefused

from ..support.certificates import Authority
from ..support.issuer import EXPECTED, Issuer


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def configured(**keys: str | int) -> BrokerConfig:
    return merge({"sasl_oauthbearer_jwks_endpoint_url": "file:///keys.json", **EXPECTED, **keys})


def judged(issuer: Issuer, token: str, **keys: str | int) -> Bearer:
    """Whom it lets in.  Raises TokenRefused."""
    rules = TokenRules(configured(**keys))
    return rules.verify(token, rules.head_of(token), SigningKeys(issuer.jwks()))


def why_refused(issuer: Issuer, token: str, **keys: str | int) -> str:
    with pytest.raises(TokenRefused) as caught:
        judged(issuer, token, **keys)
    return str(caught.value)


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# One token


def test_a_good_token_lets_its_user_in_until_it_expires(issuer: Issuer) -> None:
    bearer = judged(issuer, issuer.token(exp=int(time.time()) + 600))
    assert bearer.user == "alice"
    assert 590_000 < bearer.lifetime_ms <= 600_000


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"exp": 1_700_000_000}, "it has expired"),
        ({"exp": None}, "it has no claim exp"),
        ({"exp": "soon"}, "its claims are none"),
        ({"exp": float("inf")}, "its claims are none"),
        ({"exp": [1]}, "its claims are none"),
        ({"nbf": 4_000_000_000}, "it is not valid yet (nbf, iat)"),
        ({"iat": 4_000_000_000}, "it is not valid yet (nbf, iat)"),
        (
            {"iss": "https://other.example.org"},
            'it is of another issuer (iss "https://other.example.org")',
        ),
        ({"iss": None}, "it has no claim iss"),
        ({"aud": "another-service"}, 'it is for somebody else (aud "another-service")'),
        (
            {"aud": ["another-service", "third"]},
            'it is for somebody else (aud ["another-service", "third"])',
        ),
        ({"aud": None}, "it has no claim aud"),
        ({"sub": None}, "it has no claim sub with the name of a user"),
        ({"sub": 7}, "it has no claim sub with the name of a user"),
        ({"sub": ""}, "its claim sub is a name that no user can have"),
        ({"sub": "a\nb"}, "its claim sub is a name that no user can have"),
        ({"sub": "x" * 256}, "its claim sub is a name that no user can have"),
    ],
    ids=str,
)
def test_a_token_with_other_claims_is_refused_with_the_reason(
    issuer: Issuer, changed: dict[str, Any], told: str
) -> None:
    claims = issuer.claims(**changed)
    kid, key = next(iter(issuer.keys.items()))
    # Not by jwt.encode, which refuses some of these itself.
    signed = jwt.PyJWS().encode(json.dumps(claims).encode(), key, "RS256", {"kid": kid})
    assert why_refused(issuer, signed) == told


def test_clocks_may_differ_by_the_skew(issuer: Issuer) -> None:
    now = int(time.time())
    assert judged(issuer, issuer.token(nbf=now + 60), sasl_oauthbearer_clock_skew_seconds=90)
    late = judged(issuer, issuer.token(exp=now - 60), sasl_oauthbearer_clock_skew_seconds=90)
    assert 0 < late.lifetime_ms <= 30_000
    assert "expired" in why_refused(
        issuer, issuer.token(exp=now - 60), sasl_oauthbearer_clock_skew_seconds=0
    )


def test_the_user_may_be_in_another_claim(issuer: Issuer) -> None:
    named = issuer.token(sub=None, client_id="svc-orders")
    assert judged(issuer, named, sasl_oauthbearer_sub_claim_name="client_id").user == "svc-orders"


def test_an_audience_is_one_of_several_on_both_sides(issuer: Issuer) -> None:
    token = issuer.token(aud=["x", "y"])
    assert judged(issuer, token, sasl_oauthbearer_expected_audience="a, y")
    assert judged(issuer, token, sasl_oauthbearer_expected_audience="*")
    assert judged(issuer, issuer.token(iss="x"), sasl_oauthbearer_expected_issuer="*")


@pytest.mark.parametrize("scopes", ["read write", ["write", "read"]])
def test_the_expected_scopes_are_all_there(issuer: Issuer, scopes: object) -> None:
    token = issuer.token(scp=scopes)
    keys = {"sasl_oauthbearer_scope_claim_name": "scp"}
    assert judged(issuer, token, **keys, sasl_oauthbearer_expected_scope="read write")
    told = why_refused(issuer, token, **keys, sasl_oauthbearer_expected_scope="read admin")
    assert told == "it has not the scope admin"
    assert why_refused(
        issuer, issuer.token(scp={"read": 1}), **keys, sasl_oauthbearer_expected_scope="read"
    )


def test_a_token_without_signature_is_refused(issuer: Issuer) -> None:
    for algorithm in ("none", "None", "NONE", ""):
        token = f"{part({'alg': algorithm, 'kid': 'first'})}.{part(issuer.claims())}."
        assert "not allowed" in why_refused(issuer, token)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_token_signed_with_the_public_key_as_secret_is_refused(
    issuer: Issuer, algorithm: str
) -> None:
    public = next(iter(issuer.keys.values())).public_key()
    for secret in (
        public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
        public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
        issuer.jwks(),
    ):
        signed = f"{part({'alg': algorithm, 'kid': 'first'})}.{part(issuer.claims())}"
        digest = hmac.digest(secret, signed.encode(), "sha" + algorithm[2:])
        assert "not allowed" in why_refused(issuer, f"{signed}.{part(digest)}")


def test_a_key_serves_the_algorithm_that_it_is_for_alone(issuer: Issuer) -> None:
    _, key = next(iter(issuer.keys.items()))
    token = jwt.encode(issuer.claims(), key, "RS512", {"kid": "first"})
    assert "not known" in why_refused(issuer, token)  # its alg says RS256
    assert "not allowed" in why_refused(issuer, issuer.token(), sasl_oauthbearer_algorithms="ES256")


def test_a_key_that_the_token_brings_along_is_not_looked_at(issuer: Issuer) -> None:
    stranger = Issuer()
    row = json.loads(stranger.jwks())["keys"][0]
    headers = {"jwk": row, "jku": "https://evil.example.org/jwks", "x5u": "https://evil"}
    assert why_refused(issuer, stranger.token(headers)) == "its signature is wrong"
    named = stranger.token({**headers, "kid": "../../etc/passwd"})
    assert "not known" in why_refused(issuer, named)


def test_a_token_without_kid_is_verified_by_the_keys_that_there_are(issuer: Issuer) -> None:
    key = next(iter(issuer.keys.values()))
    assert judged(issuer, jwt.encode(issuer.claims(), key, "RS256")).user == "alice"
    other = next(iter(Issuer().keys.values()))
    assert "signature" in why_refused(issuer, jwt.encode(issuer.claims(), other, "RS256"))


def test_a_token_without_kid_may_be_of_any_key_of_its_kind(issuer: Issuer) -> None:
    two = Issuer()
    two.keys |= {"second": next(iter(issuer.keys.values()))}
    token = jwt.encode(issuer.claims(), two.keys["second"], "RS256")
    assert judged(two, token).user == "alice"


@pytest.mark.parametrize("demand", [{"crit": ["exp"]}, {"crit": []}, {"b64": False}, {"b64": 1}])
def test_a_token_that_demands_what_is_not_known_is_refused_whoever_signed_it(
    issuer: Issuer, demand: dict[str, Any]
) -> None:
    ((kid, key),) = issuer.keys.items()

    def signed(header: dict[str, Any]) -> str:
        text = f"{part({'alg': 'RS256', 'kid': kid} | header)}.{part(issuer.claims())}"
        return f"{text}.{part(key.sign(text.encode(), PKCS1v15(), SHA256()))}"

    assert judged(issuer, signed({})).user == "alice"
    assert why_refused(issuer, signed(demand))


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ec.generate_private_key(ec.SECP521R1()), "ES512"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
        (rsa.generate_private_key(65537, 2048), "PS256"),
    ],
    ids=["ES256", "ES384", "ES512", "EdDSA", "PS256"],
)
def test_other_kinds_of_keys_sign_too(issuer: Issuer, key: Any, algorithm: str) -> None:  # noqa: ANN401 - five classes
    row = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    keys = SigningKeys(json.dumps({"keys": [row | {"kid": "k"}]}).encode())
    assert len(keys) == 1, "for however many algorithms"
    rules = TokenRules(configured())
    token = jwt.encode(issuer.claims(), key, algorithm, {"kid": "k"})
    assert rules.verify(token, rules.head_of(token), keys).user == "alice"
    # With a letter of the signature changed it is nobody's.
    broken = token[:-5] + ("A" if token[-5] != "A" else "B") + token[-4:]
    with pytest.raises(TokenRefused, match="its signature is wrong"):
        rules.verify(broken, rules.head_of(broken), keys)


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "a.b",
        "...",
        "a.b.c",
        "a.b.c.d.e",  # encrypted (JWE)
        f"{part([])}.{part({})}.AAAA",
        f"{part({'alg': 5})}.{part({})}.AAAA",
        f"{part({'alg': ['RS256']})}.{part({})}.AAAA",
        f"{part({'alg': 'RS256', 'kid': 5})}.{part({})}.AAAA",
        f"{part({'alg': 'RS256', 'kid': 'k' * 600})}.{part({})}.AAAA",
        f"{part({'alg': 'RS256', 'crit': ['exp'], 'exp': 1})}.{part({})}.AAAA",
        f"{part({'alg': 'RS256', 'b64': False, 'crit': ['b64']})}..AAAA",
        f"{part(b'[' * 2_500)}.{part({})}.AAAA",
        f"{part({'alg': 'RS256', 'x': 'y' * 5_000})}.{part({})}.AAAA",
        f"{part(bytes(range(256)))}.{part({})}.AAAA",
        part({"alg": "RS256"}) + "." + part(b"[" * 8_000) + ".AAAA",
    ],
    ids=lambda token: f"{len(token)}-{hashlib.md5(token.encode()).hexdigest()[:4]}",
)
def test_garbage_is_refused(issuer: Issuer, token: str) -> None:
    assert why_refused(issuer, token)


def test_no_change_of_a_token_is_anything_but_refused(issuer: Issuer) -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    token = issuer.token()
    letters = "ABCDEFGHabcdefgh01234567-_."
    for _ in range(2_000):
        place = dice.randrange(len(token) - 1)  # the last one has bits of no meaning
        changed = token[:place] + dice.choice(letters) + token[place + dice.randrange(3) :]
        if changed != token:
            with pytest.raises(TokenRefused):
                judged_quickly(issuer, changed)


def judged_quickly(issuer: Issuer, token: str) -> Bearer:
    rules, keys = _KEPT.setdefault(
        id(issuer), (TokenRules(configured()), SigningKeys(issuer.jwks()))
    )
    return rules.verify(token, rules.head_of(token), keys)


_KEPT: dict[int, tuple[TokenRules, SigningKeys]] = {}


# Sets of keys


def test_keys_that_cannot_sign_are_left_out(issuer: Issuer) -> None:
    good = json.loads(issuer.jwks())["keys"][0]
    small = rsa.generate_private_key(65537, 1024).public_key()
    small_row = jwt.algorithms.RSAAlgorithm.to_jwk(small, as_dict=True)
    others: list[Any] = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "o"},
        good | {"use": "enc", "kid": "e"},
        {name: good[name] for name in ("kty", "n", "e")} | {"key_ops": ["wrapKey"], "kid": "w"},
        good | {"key_ops": "verify", "kid": "p"},
        good | {"kty": ["RSA"], "kid": "k"},
        good | {"alg": "HS256", "kid": "h"},
        good | {"n": "!!", "kid": "n"},
        good | {"n": 5, "kid": "m"},
        good | {"e": "", "kid": "l"},
        good | {"kid": 7},
        small_row | {"kid": "s"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "c"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "b"},
        "text",
        None,
    ]
    keys = SigningKeys(json.dumps({"keys": [*others, good]}).encode())
    assert keys.names == {"first"}
    for row in others:
        with pytest.raises(UnusableKeys):
            SigningKeys(json.dumps({"keys": [row]}).encode())


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b'{"keys":{}}', b'{"keys":[]}', b"<html>", b"[" * 100_000, b"\xff\xfe"],
    ids=lambda data: str(data[:10]),
)
def test_what_is_no_set_is_refused(data: bytes) -> None:
    with pytest.raises(UnusableKeys):
        SigningKeys(data)


def test_a_set_of_too_many_keys_is_refused(issuer: Issuer) -> None:
    row = json.loads(issuer.jwks())["keys"][0]
    with pytest.raises(UnusableKeys, match="101 keys"):
        SigningKeys(json.dumps({"keys": [row] * 101}).encode())


# Reading them


def test_keys_are_read_by_https_from_whom_the_authority_vouches_for(
    issuer: Issuer, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    with issuer.serving(authority.server()) as url:
        assert SigningKeys(read_keys(f"{url}/jwks", str(authority.file), 60)).names == {"first"}
        for ca, told in ((str(other.file), "certificate"), (str(tmp_path / "no"), "No such file")):
            with pytest.raises(KeysUnavailable, match=told):
                read_keys(f"{url}/jwks", ca, 60)


@pytest.mark.parametrize(
    ("status", "data", "told"),
    [
        (404, b"", "HTTP status 404"),
        (500, b"", "HTTP status 500"),
        (302, b"http://127.0.0.1:1/", "HTTP status 302"),
        (200, b" " * (SET_BYTES_MAX + 1), "more than 1048576 bytes"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error(status: int, data: bytes, told: str) -> None:
    issuer = Issuer()
    issuer.answer = lambda _: (status, data)
    with issuer.serving() as url, pytest.raises(KeysUnavailable, match=told):
        read_keys(f"{url}/jwks", "", 60)


def test_keys_on_this_machine_are_not_read_by_way_of_a_proxy(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with issuer.serving() as url:
        assert SigningKeys(read_keys(f"{url}/jwks", "", 60)).names == {"first"}


def test_nobody_at_the_address_is_an_error() -> None:
    with pytest.raises(KeysUnavailable):
        read_keys("http://127.0.0.1:1/jwks", "", 60)
