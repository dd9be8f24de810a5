"""Certificates for one test: an authority, and what it signs, as PEM files."""

from datetime import datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

MAY_SIGN = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""Of an authority."""


class Authority:
    """A certificate authority that lives for one test, and its files in `folder`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.file = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def server(
        self,
        name: str = "server",
        *hosts: str,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Path:
        """Certificate and key of a server in one file; for 127.0.0.1 and localhost by default."""
        hosts = hosts or ("127.0.0.1", "localhost")
        made = self._ca.issue_cert(*hosts, not_before=since, not_after=until)
        path = self._folder / f"{name}.pem"
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def chained(self, until: datetime) -> Path:
        """As `server`, signed by an authority in between, which ends at `until`."""
        key = ec.generate_private_key(ec.SECP256R1())
        root = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        root_key = load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(root_key, ec.EllipticCurvePrivateKey)
        between = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "between")]))
            .issuer_name(root.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(until - timedelta(days=1_000))
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            # What Python asks for since 3.13 (ssl.VERIFY_X509_STRICT), as RFC 5280 does.
            .add_extension(MAY_SIGN, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), False
            )
            .sign(root_key, SHA256())
        ).public_bytes(Encoding.PEM)
        own_key = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        made = trustme.CA.from_pem(between, own_key).issue_cert("127.0.0.1", "localhost")
        path = self._folder / "chained.pem"
        leaf = made.cert_chain_pems[0].bytes()
        path.write_bytes(made.private_key_pem.bytes() + leaf + between)
        return path

    def client(self, common_name: str, organization: str = "Tests", *, pkcs8: bool = False) -> Path:
        """Certificate and key of a client in one file; Java reads keys in PKCS 8 only."""
        made = self._ca.issue_cert(
            f"{common_name}@example.org",
            common_name=common_name,
            organization_name=organization,
        )
        path = self._folder / f"client-{common_name}.pem"
        key = made.private_key_pem.bytes()
        if pkcs8:
            key = load_pem_private_key(key, None).private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
            )
        path.write_bytes(key + b"".join(pem.bytes() for pem in made.cert_chain_pems))
        return path
