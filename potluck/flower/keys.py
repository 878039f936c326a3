"""Keys and certificates of a consortium.

    FOLDER/coordinator/     stays with the coordinator
        ca.crt, ca.key            the certificate authority that vouches for the server
        server.crt, server.key    the server's certificate, for its names and addresses
        network.json              where sites find the server
        sites/NAME.pub            the keys that are admitted
    FOLDER/sites/NAME/      goes to that site, over a safe channel
        key, key.pub              its key pair
        ca.crt                    by which it knows the server
        invitation.json           where the server is

Nothing that is there is ever overwritten: the command may be repeated to add sites.
"""

import ipaddress
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from potluck.errors import PotluckError
from potluck.study.files import writing

PORT = 8500
DAYS = 365

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,62}")


@dataclass(frozen=True)
class CoordinatorKeys:
    """The coordinator's folder.

    Args:
      folder: where it is.
    """

    folder: Path

    def check(self) -> None:
        """Refuse a folder that `potluck keys` did not make."""
        for name in ("ca.crt", "server.crt", "server.key", "network.json"):
            if not (self.folder / name).exists():
                raise PotluckError(
                    f"{self.folder}: there is no {name}; give the folder coordinator that potluck "
                    "keys made."
                )
        if not self.sites():
            raise PotluckError(f"{self.folder}: no site has a key; add some: potluck keys --site.")

    @property
    def authority(self) -> Path:
        """The certificate of the authority."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.folder / "server.crt"

    @property
    def key(self) -> Path:
        """The server's private key."""
        return self.folder / "server.key"

    @property
    def port(self) -> int:
        """Where sites find the server."""
        return int(_read(self.folder / "network.json")["port"])

    def sites(self) -> dict[str, Path]:
        """The public keys that are admitted, by site, in alphabetical order."""
        return {path.stem: path for path in sorted((self.folder / "sites").glob("*.pub"))}


@dataclass(frozen=True)
class Invitation:
    """A site's folder.

    Args:
      folder: where it is.
    """

    folder: Path

    def check(self) -> None:
        """Refuse a folder that `potluck keys` did not make."""
        for name in ("ca.crt", "key", "invitation.json"):
            if not (self.folder / name).exists():
                raise PotluckError(
                    f"{self.folder}: there is no {name}; give the folder that the coordinator made "
                    "for this site with potluck keys."
                )

    @property
    def authority(self) -> Path:
        """The certificate by which the site knows the server."""
        return self.folder / "ca.crt"

    @property
    def key(self) -> Path:
        """The site's private key."""
        return self.folder / "key"

    @property
    def address(self) -> str:
        """Where the server is: HOST:PORT."""
        return str(_read(self.folder / "invitation.json")["coordinator"])

    @property
    def site(self) -> str:
        """Whose key this is."""
        return str(_read(self.folder / "invitation.json")["site"])


def make_keys(
    folder: Path, sites: Sequence[str], hosts: Sequence[str], port: int = PORT, days: int = DAYS
) -> list[str]:
    """Make what is missing of a consortium's keys and certificates.

    Args:
      folder: where to.
      sites:  names of the sites that get a key pair.
      hosts:  names and addresses of the coordinator's machine; sites use the first.
      port:   where the server listens.
      days:   how long certificates are valid.

    Returns:
      the names of the sites that are new.
    """
    for name in sites:
        if not _NAME.fullmatch(name):
            raise PotluckError(
                f'"{name}" is no name for a site with a key: use letters, digits, spaces and .-_ '
                "(the same name as in its site file)."
            )
    if not hosts:
        raise PotluckError("give the name or address of the coordinator's machine: --host.")
    own = CoordinatorKeys(folder / "coordinator")
    with writing(folder):
        (own.folder / "sites").mkdir(parents=True, exist_ok=True)
        _private(own.folder)
        if not own.authority.exists():
            _make_authority(own, days)
        if not own.certificate.exists():
            _make_certificate(own, hosts, days)
            _write(own.folder / "network.json", _dumped(hosts=list(hosts), port=port))
        network = _read(own.folder / "network.json")
        address = _address(network["hosts"][0], network["port"])
        return [name for name in sites if _make_site(folder, own, name, address)]


def valid_until(path: Path) -> datetime:
    """When a certificate ends."""
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc


def _make_authority(own: CoordinatorKeys, days: int) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "potluck consortium")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    _write(own.folder / "ca.key", _pem(key), secret=True)
    _write(own.authority, certificate.public_bytes(serialization.Encoding.PEM))


def _make_certificate(own: CoordinatorKeys, hosts: Sequence[str], days: int) -> None:
    authority = x509.load_pem_x509_certificate(own.authority.read_bytes())
    signer = serialization.load_pem_private_key((own.folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    # The coordinator's own processes talk to the server as well.
    alternatives = x509.SubjectAlternativeName(_names([*hosts, "localhost", "127.0.0.1"]))
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = (
        _builder(name, authority.subject, key.public_key(), days)
        .add_extension(alternatives, critical=False)
        .add_extension(usage, critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(signer, hashes.SHA384())
    )
    _write(own.key, _pem(key), secret=True)
    _write(own.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _make_site(folder: Path, own: CoordinatorKeys, name: str, address: str) -> bool:
    public = own.folder / "sites" / f"{name}.pub"
    if public.exists():
        return False
    site = folder / "sites" / name
    site.mkdir(parents=True, exist_ok=True)
    _private(site)
    key = ec.generate_private_key(ec.SECP384R1())
    openssh, plain = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    _write(site / "key", key.private_bytes(serialization.Encoding.PEM, openssh, plain), secret=True)
    written = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    _write(site / "key.pub", written)
    _write(site / "ca.crt", own.authority.read_bytes())
    _write(site / "invitation.json", _dumped(site=name, coordinator=address))
    _write(public, written)
    return True


def _builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
    )


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    found: dict[str, x509.GeneralName] = {}
    for host in hosts:
        try:
            found[host] = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            found[host] = x509.DNSName(host)
    return list(found.values())


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _dumped(**facts: Any) -> bytes:
    return (json.dumps(facts, indent=1) + "\n").encode()


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PotluckError(f"{path}: cannot be read ({error}).") from None


def _write(path: Path, data: bytes, secret: bool = False) -> None:
    mode = 0o600 if secret else 0o644
    # The mode from the start: nobody may read a secret before it is set.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)


def _private(folder: Path) -> None:
    folder.chmod(0o700)
