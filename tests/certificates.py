"""Certificates for tests of TLS, made by the ``openssl`` command.

``make_pki`` fills a folder: the CA ``ca`` signed ``server`` and ``client``, ``other`` signed
``stranger``. Of each there is ``<name>.pem``, ``<name>.key``, and both in ``<name>.both.pem``, as
Kafka wants them; ``locked.key`` is the server's key under the password ``secret``.
"""

import subprocess
from pathlib import Path

CLIENT_SUBJECT = "/C=DE/O=Example, Inc./OU=dev/CN=client"
CLIENT_PRINCIPAL = "User:CN=client,OU=dev,O=Example\\, Inc.,C=DE"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_pki(folder: Path) -> Path:
    for ca in ("ca", "other"):
        make_certificate(folder, ca, f"/CN={ca}")
    sign(folder, "server", "/CN=server", "ca")
    sign(folder, "client", CLIENT_SUBJECT, "ca")
    sign(folder, "stranger", "/CN=stranger", "other")
    locking = ("-topk8", "-v2", "aes-256-cbc", "-passout", "pass:secret")
    openssl(folder, "pkcs8", *locking, "-in", "server.key", "-out", "locked.key")
    return folder


def make_certificate(folder: Path, name: str, subject: str, *options: str) -> None:
    """Make one that is signed by itself."""
    own = (*_NEW_KEY, "-keyout", f"{name}.key", "-subj", subject, *options)
    openssl(folder, "req", "-x509", *own, "-utf8", "-days", "2", "-out", f"{name}.pem")


def sign(folder: Path, name: str, subject: str, ca: str = "ca", names: str = NAMES) -> None:
    """Make one that is signed by ``ca``, for the hosts in ``names``."""
    own = (*_NEW_KEY, "-keyout", f"{name}.key", "-subj", subject)
    openssl(folder, "req", *own, "-out", f"{name}.csr")
    (folder / "names").write_text(names)
    signer = ("-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial")
    made = ("-days", "2", "-extfile", "names", "-out", f"{name}.pem")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signer, *made)
    both = (folder / f"{name}.key").read_text() + (folder / f"{name}.pem").read_text()
    (folder / f"{name}.both.pem").write_text(both)
