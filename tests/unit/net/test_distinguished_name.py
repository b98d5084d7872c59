"""The name in a certificate, as Java prints it; its JDK 17 said what is expected here."""

import shutil
import ssl
from pathlib import Path
from random import Random

import pytest

from odradek.core.errors import CorruptionError
from odradek.net.distinguished_name import alternative_names_of, subject_of
from tests.certificates import make_certificate, make_pki, openssl, sign

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


def der(folder: Path, name: str = "it") -> bytes:
    return ssl.PEM_cert_to_DER_cert((folder / f"{name}.pem").read_text())


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("/CN=alice", "CN=alice"),
        (
            "/C=DE/ST=Berlin/L=Mitte/O=A, B \\/ C/OU=x=y;z/CN=alice",
            r"CN=alice,OU=x\=y\;z,O=A\, B / C,L=Mitte,ST=Berlin,C=DE",
        ),
        (
            "/CN=Zoë+UID=z1/emailAddress=a@b.de/DC=example/serialNumber=12",
            "2.5.4.5=#13023132,DC=example,1.2.840.113549.1.9.1=#16066140622e6465,CN=Zoë+UID=z1",
        ),
        (
            '/CN= lead and trail /O=#hash"q"<>\\\\back',
            r"O=\#hash\"q\"\<\>\\back,CN=\ lead and trail\ ",
        ),
        ("/title=Dr/GN=G/street=S/CN=日本", "CN=日本,STREET=S,2.5.4.42=#0c0147,2.5.4.12=#0c024472"),
        ("/", ""),
    ],
)
def test_names_are_those_of_java(tmp_path: Path, subject: str, name: str) -> None:
    make_certificate(tmp_path, "it", subject, "-multivalue-rdn")
    assert subject_of(der(tmp_path)) == name


def test_what_is_not_utf_8_keeps_all_of_its_bytes(tmp_path: Path) -> None:
    config = tmp_path / "utf-16.cnf"
    config.write_text(
        "[req]\ndistinguished_name=dn\nprompt=no\nstring_mask=MASK:0x800\n[dn]\nCN=Zoë\n"
    )
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    made = ("-keyout", "k", "-utf8", "-config", str(config), "-out", "it.pem")
    openssl(tmp_path, "req", "-x509", *key, *made)
    assert subject_of(der(tmp_path)) == "CN=#1e06005a006f00eb"


def test_damaged_bytes_are_refused_and_nothing_else(tmp_path: Path) -> None:
    make_certificate(tmp_path, "it", "/O=Example/CN=alice")
    whole = der(tmp_path)
    for length in range(len(whole)):
        for read in (subject_of, alternative_names_of):
            with pytest.raises(CorruptionError):
                read(whole[:length])
    random = Random(1)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(min(len(damaged), 200))] = random.randrange(256)
        try:
            subject_of(bytes(damaged[: random.randint(0, len(damaged))]))
        except CorruptionError:
            refused += 1
    assert refused > 1000


def test_alternative_names_are_told_apart(tmp_path: Path) -> None:
    make_pki(tmp_path)
    sign(tmp_path, "one", "/CN=x", names="subjectAltName=DNS:a,IP:127.0.0.1,DNS:b")
    sign(tmp_path, "other", "/CN=x", names="subjectAltName=critical,DNS:b,DNS:a")
    make_certificate(tmp_path, "none", "/CN=x")
    one, other, none = (_names(tmp_path, name) for name in ("one", "other", "none"))
    # Context tags of RFC 5280: 2 is a DNS name, 7 an IP address.
    assert one == {b"\x82\x01a", b"\x82\x01b", b"\x87\x04\x7f\x00\x00\x01"}
    assert other == {b"\x82\x01a", b"\x82\x01b"}
    assert none == set()


def _names(folder: Path, name: str) -> frozenset[bytes]:
    der = ssl.PEM_cert_to_DER_cert((folder / f"{name}.pem").read_text())
    return alternative_names_of(der)
