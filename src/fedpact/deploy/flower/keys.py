"""Keys of a Flower kit: its certificate authority, the server's certificate, and a key pair for each node."""

import datetime
import ipaddress
from typing import Any

VALID_DAYS = 825  # validity of the certificates


def node_key_pair() -> tuple[bytes, bytes]:
    """A new private and public key for a node, in the format of `ssh-keygen -t ecdsa -b 384`."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public + b"\n"


class CertificateAuthority:
    """A certificate authority for one kit; its key is in memory only, as long as this object."""

    def __init__(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fedpact kit")])
        self.certificate = self._sign(
            self.key.public_key(),
            self.name,
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), False),
            (self._usage(signs_certificates=True), True),
        )

    def sign_server(self, host: str) -> tuple[bytes, bytes]:
        """A private key and certificate for the server, valid for `host`, localhost and 127.0.0.1; both in PEM."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = []
        for name in dict.fromkeys((host, "localhost", "127.0.0.1")):
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(name)))
            except ValueError:
                names.append(x509.DNSName(name))
        certificate = self._sign(
            key.public_key(),
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host[:64])]),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.SubjectAlternativeName(names), False),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False),
            (self._usage(signs_certificates=False), True),
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return private, certificate

    @staticmethod
    def _usage(signs_certificates: bool) -> Any:
        from cryptography import x509

        return x509.KeyUsage(
            digital_signature=not signs_certificates,
            key_cert_sign=signs_certificates,
            crl_sign=signs_certificates,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )

    def _sign(self, public_key: Any, subject: Any, *extensions: tuple[Any, bool]) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)  # clocks differ
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + datetime.timedelta(days=VALID_DAYS))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
