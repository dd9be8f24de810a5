"""Subjects as text; what is expected was printed by X500Principal.getName of Java 17."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from segbroker.protocol.certificate_names import name_of, subject_of

OF_JAVA = {
    "310b3009060355040613024445310d300b060355040a0c04412c2042311c3009060355040b0c022078300f060a0992"
    "268993f22c6401010c01373110300e06035504030c0723616c2b696365": (
        "CN=\\#al\\+ice,OU=\\ x+UID=7,O=A\\, B,C=DE"
    ),
    "310e300c06035504030c05613d622363": "CN=a\\=b\\#c",
    "3115301306035504030c0c206c65616420747261696c20": "CN=\\ lead trail\\ ",
    "310c300a06035504030c03202020": "CN=\\ \\ \\ ",
    "310a300806035504030c0120": "CN=\\ ",
    "310e300c06035504030c056e756c0078": "CN=nul\\00x",
    "3116301406035504030c0d4ac3b6726720e4b8adf09f9880": "CN=Jörg 中😀",
    "310f300d06035504030c0671225c3b3c3e": 'CN=q\\"\\\\\\;\\<\\>',
    "3114301206092a864886f70d01090116056140622e63310a300806035504030c0178": (
        "CN=x,1.2.840.113549.1.9.1=#16056140622e63"
    ),
    "310a30080603550405130135310a300806035504030c0178": "CN=x,2.5.4.5=#130135",
    "310d300b060355040c0c04626f7373310a300806035504030c0178": "CN=x,2.5.4.12=#0c04626f7373",
    "3111300f060a2b06010401868d1f822c0c0176310a300806038837010c0177": (
        "2.999.1=#0c0177,1.3.6.1.4.1.99999.300=#0c0176"
    ),
    "310b3009060355040313027072": "CN=pr",
    "310c300a06035504031403743631": "CN=t61",
    "310c300a06035504031603696135": "CN=ia5",
    "3115301306035504031c0c000000750000006e00000069": "CN=#1c0c000000750000006e00000069",
    "310b3009060355042d03020001": "2.5.4.45=#03020001",
    "311e300806035504070c016c300806035504080c0174300806035504090c0173": "L=l+ST=t+STREET=s",
    "": "",
    "3109300706035504030c00": "CN=",
}


@pytest.mark.parametrize(("der", "name"), OF_JAVA.items(), ids=list(map(str, OF_JAVA.values())))
def test_a_subject_is_written_as_java_writes_it(der: str, name: str) -> None:
    assert name_of(bytes.fromhex(der)) == name


def test_text_that_is_none_is_written_as_its_bytes() -> None:
    assert name_of(bytes.fromhex("310b300906035504030c02ff41")) == "CN=#0c02ff41"


def test_the_subject_is_found_in_a_certificate_and_is_not_its_issuer() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    began = datetime(2026, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(began)
        .not_valid_after(began + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    assert subject_of(certificate.public_bytes(Encoding.DER)) == "CN=alice"


@given(st.binary(max_size=200))
def test_what_is_no_certificate_is_refused_and_nothing_else(data: bytes) -> None:
    for read in (subject_of, name_of):
        with suppress(ValueError):
            read(data)
