"""Certificates and node keys for trials: ``fedstein deploy certs``. Real deployments bring their own."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedstein.errors import InputError
from fedstein.files import disk_errors, sync_folder

LOOPBACK = ("localhost", "127.0.0.1")
SKEW = timedelta(minutes=10)  # the certificate is valid from a little earlier, because clocks differ
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")


class Certificates(NamedTuple):
    """The files of a folder that ``make_certificates`` has written."""

    folder: Path
    nodes: tuple[str, ...]

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        return self.folder / "link.crt"

    @property
    def key(self) -> Path:
        return self.folder / "link.key"

    @property
    def secret(self) -> Path:
        return self.folder / "superexec.secret"

    def private(self, node: str) -> Path:
        return self.folder / f"node-{node}.key"

    def public(self, node: str) -> Path:
        return self.folder / f"node-{node}.pub"


def node_names(text: str) -> tuple[str, ...]:
    """Read ``--nodes``.

    Args:
        text: A number (3 stands for site0 to site2), or names separated by commas.

    Returns:
        The names.
    """
    if text.strip().isdigit():
        return tuple(f"site{k}" for k in range(int(text)))
    return tuple(part.strip() for part in text.split(","))


def make_certificates(
    folder: Path, hosts: Iterable[str] = (), nodes: Sequence[str] = ("site0", "site1", "site2"), days: int = 90
) -> Certificates:
    """Write a CA, a certificate of the link, a SuperExec secret, and a key pair for each node.

    The CA's own key is not kept, so nobody can sign a second link with it.

    Args:
        folder: A new or empty folder.
        hosts: Host names and IP addresses of the link, in addition to those of this machine.
        nodes: The names of the nodes.
        days: For how long the certificates are valid.

    Returns:
        The files.

    Raises:
        InputError: A host or a name is invalid, or the folder has content.
    """
    names = _subject_names([*LOOPBACK, *hosts])
    _check_nodes(nodes)
    if not 1 <= days <= 3650:
        raise InputError(f"expected --days from 1 to 3650, got {days}")
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} already has content, and keys are never overwritten; choose a new folder")
    ca, certificate, key = _chain(names, timedelta(days=days))
    result = Certificates(folder, tuple(nodes))
    draft = Certificates(folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp"), tuple(nodes))
    with disk_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft.folder.mkdir(mode=0o700)
        try:
            _write(draft.ca, _pem(ca), 0o644)
            _write(draft.certificate, _pem(certificate), 0o644)
            _write(draft.key, _private(key, serialization.PrivateFormat.PKCS8), 0o600)
            _write(draft.secret, secrets.token_hex(32).encode(), 0o600)
            for node in nodes:
                pair = ec.generate_private_key(ec.SECP384R1())
                _write(draft.private(node), _private(pair, serialization.PrivateFormat.OpenSSH), 0o600)
                _write(draft.public(node), _public(pair, node), 0o644)
            os.rename(draft.folder, folder)  # replaces an empty folder, but never one with content
            sync_folder(folder.parent)
        except BaseException:
            shutil.rmtree(draft.folder, ignore_errors=True)
            raise
    return result


def _chain(
    names: list[x509.GeneralName], life: timedelta
) -> tuple[x509.Certificate, x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A CA, the link's certificate signed by it, and the link's key."""
    start = datetime.now(UTC)
    ca_key, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fedstein trial CA")])

    def begin(subject: x509.Name, own: ec.EllipticCurvePrivateKey, authority: bool) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start - SKEW)
            .not_valid_after(start + life)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
            .add_extension(_usage(authority), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )

    link_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fedstein trial link")])
    link = (
        begin(link_name, key, authority=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    authority = begin(ca_name, ca_key, authority=True)
    return authority.sign(ca_key, hashes.SHA384()), link.sign(ca_key, hashes.SHA384()), key


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not HOST.fullmatch(host):
                raise InputError(
                    f"expected --host to be a host name or an IP address (without a port), got {host!r}"
                ) from None
            found.append(x509.DNSName(host))
    return found


def _check_nodes(nodes: Sequence[str]) -> None:
    if not nodes:
        raise InputError("expected at least one node, got none; give --nodes a number or names with commas between")
    for node in nodes:
        if not NODE.fullmatch(node):
            raise InputError(f"expected node names of letters, digits, . _ and -, got {node!r}")
    if len(set(nodes)) < len(nodes):
        raise InputError(f"expected node names that differ, got {', '.join(nodes)}")


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _public(key: ec.EllipticCurvePrivateKey, comment: str) -> bytes:
    line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return line + b" " + comment.encode() + b"\n"


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a new file that nobody else can read at any moment, not even while it is empty."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)  # set explicitly, because the umask may allow more
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def next_steps(certificates: Certificates) -> str:
    """Describe what was made, where each file belongs, and the next commands."""
    lines = [
        f"{certificates.folder}: for trials; a real deployment has its own CA, and each node makes its own key.",
        "  the link keeps   link.key link.crt ca.crt superexec.secret",
        "  each node gets   ca.crt and its own node-NAME.key, over a safe channel; then delete the key here",
        "Next, once the link runs (fedstein deploy app DIR prints its commands), let the nodes in:",
    ]
    lines += [
        f"  flwr supernode register {shlex.quote(str(certificates.public(node)))} fedstein-tls --name {node}"
        for node in certificates.nodes
    ]
    return "\n".join(lines)
