"""Certificates for a broker and its clients, made on demand.

They are an authority, signed certificates, and an untrusted authority.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Identity(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str = "") -> str:
        """Return the key in PKCS 8, as Kafka requires.

        Java 17 cannot read keys with the current encryption (PBES2).
        """
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def write_pem(self, path: Path) -> Path:
        """The key and the certificate in one file, as Java and librdkafka require."""
        path.write_text(self.key_pem() + self.certificate_pem())
        return path

    def write_pkcs12(self, path: Path, password: str, authority: Identity) -> Path:
        """The same in an encrypted file."""
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"me", self.key, self.certificate, [authority.certificate], encryption
            )
        )
        return path


def authority(name: str) -> Identity:
    """A self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    return Identity(_begun(name, name, key, key, is_authority=True).sign(key, hashes.SHA256()), key)


def signed(by: Identity, name: str) -> Identity:
    """A certificate for 127.0.0.1, for a server or a client."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = by.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    usage = x509.ExtendedKeyUsage(
        [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    )
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    begun = _begun(name, str(issuer), key, by.key, is_authority=False)
    return Identity(
        begun.add_extension(usage, critical=False)
        .add_extension(addresses, critical=False)
        .sign(by.key, hashes.SHA256()),
        key,
    )


def _begun(
    name: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    # Python 3.13 requires key identifiers and the usage of an authority's key.
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    )
    usage |= {"encipher_only": False, "decipher_only": False, "digital_signature": True}
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None),
            critical=True,
        )
        .add_extension(
            x509.KeyUsage(key_cert_sign=is_authority, crl_sign=is_authority, **usage), critical=True
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
