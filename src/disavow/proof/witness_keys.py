"""The key of a witness as two files: FILE, the private key, and FILE.pub, the verifier key that others get."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow.errors import ConfigError, Unreadable
from disavow.proof.cosignatures import LARGEST_FILE, WitnessKey, WitnessSigner, parse_witnesses
from disavow.proof.keys import AskPassphrase, nobody_to_ask, read_private, write_private
from disavow.proof.notes import check_name


def public_path(path: Path) -> Path:
    """Return where the verifier key of a private key lies.

    Args:
        path: The private key.

    """
    return path.with_name(f"{path.name}.pub")


def generate_witness_key(path: Path, *, name: str, passphrase: str | None) -> WitnessKey:
    """Make the key of a witness. A file that is there is never overwritten.

    Args:
        path: Where the private key goes; the verifier key goes beside it.
        name: The name that the witness cosigns under, such as its host name.
        passphrase: What the private key is encrypted with; None leaves it plain.

    Returns:
        The verifier key.

    Raises:
        ConfigError: A file is there, or cannot be written.
        Unreadable: No key can have this name.

    """
    signer = WitnessSigner(check_name(name), Ed25519PrivateKey.generate())
    public = public_path(path)
    if public.exists():
        raise ConfigError(f"{public} is there and is never overwritten")
    write_private(path, signer.private, passphrase)
    try:
        public.write_text(f"{signer.public}\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{public} cannot be written: {error.strerror}") from None
    return signer.public


def load_witness_signer(path: Path, ask: AskPassphrase = nobody_to_ask) -> WitnessSigner:
    """Load the key of a witness.

    Args:
        path: The private key.
        ask: Asks a person for the passphrase where the environment has none.

    Raises:
        ConfigError: It is not there, cannot be opened, or is not that of the verifier key beside it.
        Unreadable: The verifier key cannot be read.

    """
    [public] = read_witnesses(public_path(path))[:1]
    signer = WitnessSigner(public.name, read_private(path, ask))
    if signer.public != public:
        raise ConfigError(f"{path} and {public_path(path).name} beside it are not of one key")
    return signer


def read_witnesses(path: Path) -> tuple[WitnessKey, ...]:
    """Read a file with keys of witnesses, one a line.

    Args:
        path: The file.

    Raises:
        Unreadable: It cannot be read, or holds anything else.

    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from None
    return witnesses_in(data, str(path))


def witnesses_in(data: bytes, where: str = "the witnesses' keys") -> tuple[WitnessKey, ...]:
    """Read keys of witnesses, one a line.

    Args:
        data: Anything.
        where: What it is called where it is refused.

    Raises:
        Unreadable: It is something else.

    """
    if len(data) > LARGEST_FILE:
        raise Unreadable(f"{where} is larger than {LARGEST_FILE:,} bytes")
    try:
        return parse_witnesses(data.decode(), where)
    except UnicodeDecodeError:
        raise Unreadable(f"{where} is not UTF-8") from None
