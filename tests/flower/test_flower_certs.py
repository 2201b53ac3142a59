"""Trial certificates: TLS trusts the chain for the names asked for and no others, keys are private, nothing is lost."""

from __future__ import annotations

import ipaddress
import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedstein.errors import InputError
from fedstein.flower.launch.certs import Certificates, make_certificates, next_steps, node_names


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("made") / "certs"
    return make_certificates(folder, ["link.example", "10.1.2.3"], ["north", "south"], days=7)


def handshake(made: Certificates, name: str, trusted: Path) -> None:
    """TLS between two ends in memory, with the checks of a real client."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.certificate, made.key)
    client = ssl.create_default_context(cafile=trusted)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)]
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "link.example", "10.1.2.3"])
def test_the_chain_is_trusted_for_loopback_and_the_hosts_asked_for(made: Certificates, name: str):
    handshake(made, name, made.ca)


@pytest.mark.parametrize("name", ["other.example", "10.1.2.4"])
def test_it_is_not_trusted_for_another_host(made: Certificates, name: str):
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, name, made.ca)


def test_another_ca_does_not_vouch_for_it(made: Certificates, tmp_path: Path):
    other = make_certificates(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, "localhost", other.ca)


def test_names_are_subject_alternative_names_of_the_right_kind(made: Certificates):
    link = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    names = link.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "link.example"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(ip) for ip in ("127.0.0.1", "10.1.2.3")]
    assert 6 <= (link.not_valid_after_utc - link.not_valid_before_utc).days <= 7


def test_node_keys_are_what_flower_loads(made: Certificates):
    for node in made.nodes:
        private = load_ssh_private_key(made.private(node).read_bytes(), password=None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp384r1"
        public = load_ssh_public_key(made.public(node).read_bytes())
        assert public == private.public_key()


def test_private_files_are_private_whatever_the_umask(tmp_path: Path):
    script = (
        "import os, sys; os.umask(0); from pathlib import Path\n"
        "from fedstein.flower.launch.certs import make_certificates\n"
        "make_certificates(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "certs")], check=True)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "certs").iterdir()}
    assert oct((tmp_path / "certs").stat().st_mode & 0o777) == "0o700"
    public = {name for name in modes if name.endswith((".crt", ".pub"))}
    assert {modes[name] for name in public} == {"0o644"}
    assert {modes[name] for name in modes.keys() - public} == {"0o600"}
    assert "ca.key" not in modes  # nobody can sign with it later


def test_nothing_is_overwritten(made: Certificates, tmp_path: Path):
    before = {path.name: path.read_bytes() for path in made.folder.iterdir()}
    with pytest.raises(InputError, match="never overwritten"):
        make_certificates(made.folder)
    assert {path.name: path.read_bytes() for path in made.folder.iterdir()} == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="already has content"):
        make_certificates(tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]


def test_an_empty_folder_is_used_and_made_private(tmp_path: Path):
    (tmp_path / "certs").mkdir(mode=0o755)
    made = make_certificates(tmp_path / "certs")
    assert made.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hosts": ["link.example:8000"]}, "without a port"),
        ({"hosts": ["a b"]}, "host name"),
        ({"nodes": []}, "at least one node"),
        ({"nodes": ["../x"]}, "node names"),
        ({"nodes": ["a", "a"]}, "differ"),
        ({"days": 0}, "--days"),
    ],
)
def test_wrong_input_is_refused_and_leaves_nothing(tmp_path: Path, arguments: dict, message: str):
    with pytest.raises(InputError, match=message):
        make_certificates(tmp_path / "certs", **arguments)
    assert os.listdir(tmp_path) == []


def test_nodes_are_a_number_or_names():
    assert node_names("2") == ("site0", "site1")
    assert node_names("north, south") == ("north", "south")


def test_the_next_steps_register_every_node(made: Certificates):
    text = next_steps(made)
    assert "for trials" in text
    for node in made.nodes:
        assert f"flwr supernode register {made.public(node)} fedstein-tls --name {node}" in text
