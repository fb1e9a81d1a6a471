"""Sign and verify with a SuperNode's authentication key: ECDSA with SHA-256, as Flower itself signs.

A ClientApp runs in a process of its own and never sees that key. Where it is to sign, the node config names the file
as `node-key`: the one that `--auth-supernode-private-key` is given.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from disavow.errors import ConfigError
from disavow.flower.protocol import KEY_PREFIX

NODE_KEY = "node-key"
"""The key of the node config that names the file of the node's authentication key."""

_ALGORITHM = ec.ECDSA(hashes.SHA256())


class NodeSigner:
    """A SuperNode's private key.

    Args:
        key: The key.

    """

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key

    @classmethod
    def load(cls, path: Path | str) -> NodeSigner:
        """Read the file that `flower-supernode --auth-supernode-private-key` is given.

        Args:
            path: The file, as `ssh-keygen -t ecdsa` writes it; without a passphrase, as Flower needs it.

        Raises:
            ConfigError: It cannot be read, or is no such key.

        """
        file = Path(path).expanduser()
        try:
            key = serialization.load_ssh_private_key(file.read_bytes(), password=None)
        except OSError as error:
            raise ConfigError(f"the node's key {file} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigError(
                f"{file} is no private key of a SuperNode; allowed: what `ssh-keygen -t ecdsa -b 384` makes, without "
                "a passphrase"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{file} is no ECDSA key; allowed: what `ssh-keygen -t ecdsa -b 384` makes")
        return cls(key)

    @property
    def public_key(self) -> bytes:
        """The public half, in PEM: what the SuperLink tells of the node."""
        return self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def sign(self, message: bytes) -> bytes:
        """Sign a message.

        Args:
            message: What is signed.

        """
        return self._key.sign(message, _ALGORITHM)


def parse_public_key(public_key: bytes) -> ec.EllipticCurvePublicKey | None:
    """Read a node's public key.

    Args:
        public_key: In PEM, as the SuperLink tells it; it may be anything.

    Returns:
        The key; None where it is no key of a SuperNode.

    """
    try:
        key = serialization.load_pem_public_key(public_key)
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, ec.EllipticCurvePublicKey) else None


def fingerprint(public_key: bytes) -> str | None:
    """Compute a node key's fingerprint as `ssh-keygen -l` prints it; None where it is no key of a SuperNode."""
    key = parse_public_key(public_key)
    if key is None:
        return None
    digest = serialization.ssh_key_fingerprint(key, hashes.SHA256())
    return KEY_PREFIX + b64encode(digest).decode().rstrip("=")


def is_signed(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Say whether the holder of a node key signed a message.

    Args:
        public_key: In PEM.
        signature: What came with the message.
        message: What was signed.

    """
    key = parse_public_key(public_key)
    if key is None:
        return False
    try:
        key.verify(signature, message, _ALGORITHM)
    except InvalidSignature:
        return False
    return True
