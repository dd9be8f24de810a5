"""Certificates for one test: an authority, and what it signs, as PEM files."""

from datetime import datetime
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


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
