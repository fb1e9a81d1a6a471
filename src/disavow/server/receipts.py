"""The key and the certificate by which OpenDSR receipts and callbacks are signed: RSA, SHA-256 (FIPS 186-4).

They lie in the service's folder. Where there are none, a key with a certificate that it signs itself is made, to
try things out: OpenDSR wants one that an authority has issued to the organisation, in the same two files.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from disavow.errors import ConfigError
from disavow.ledger.files import PRIVATE_FILE, write_durably

KEY, CERTIFICATE = "opendsr.key", "opendsr.pem"
_BITS = 2048
_DAYS = 825


class ReceiptSigner:
    """Signs receipts and callbacks.

    Args:
        folder: Where key and certificate lie, or are made.

    Raises:
        ConfigError: They cannot be used.

    """

    def __init__(self, folder: Path) -> None:
        key, certificate = folder / KEY, folder / CERTIFICATE
        if not key.exists():
            _make(key, certificate)
        try:
            loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
            self.certificate = certificate.read_bytes()
            found = x509.load_pem_x509_certificate(self.certificate)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{key} and {certificate} cannot be used: {error}") from None
        if not isinstance(loaded, rsa.RSAPrivateKey) or found.public_key() != loaded.public_key():
            raise ConfigError(f"{certificate} is no certificate of the RSA key in {key}")
        self._key = loaded

    def sign(self, body: bytes) -> str:
        """Sign a body; in base64."""
        return base64.b64encode(self._key.sign(body, padding.PKCS1v15(), hashes.SHA256())).decode()


def _make(key: Path, certificate: Path) -> None:
    made = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "disavow (self-signed, for trials)")])
    today = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(made.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=_DAYS))
        .sign(made, hashes.SHA256())
    )
    pem = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # the certificate first: a key that is there has one
    write_durably(certificate, signed.public_bytes(serialization.Encoding.PEM), mode=0o644)
    write_durably(key, pem, mode=PRIVATE_FILE)
