"""Certificates for one test: an authority, and what it signs, as PEM files."""

from pathlib import Path

import trustme


class Authority:
    """A certificate authority that lives for one test, and its files in `folder`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.file = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def server(self, name: str = "server", *hosts: str) -> Path:
        """Certificate and key of a server in one file; for 127.0.0.1 and localhost by default."""
        made = self._ca.issue_cert(*(hosts or ("127.0.0.1", "localhost")))
        path = self._folder / f"{name}.pem"
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def client(self, common_name: str, organization: str = "Tests") -> Path:
        """Certificate and key of a client in one file."""
        made = self._ca.issue_cert(
            f"{common_name}@example.org",
            common_name=common_name,
            organization_name=organization,
        )
        path = self._folder / f"client-{common_name}.pem"
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path
