"""The model store: one file per model, named by its digest, immutable, durable before it is named.

A file of the run directory, or an object of a bucket: see `blobs`.

The digest is SHA-256 of the *uncompressed* safetensors file with tensors sorted by name and no metadata, so
that anyone can check a published model with `sha256sum`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from disavow.domain import Layout
from disavow.errors import IntegrityError, RunUnsafe
from disavow.ledger.blobs import Blobs, blobs_of, folder_of
from disavow.ledger.files import Folder

if TYPE_CHECKING:  # loaded by what reads or writes a model: commands that do neither start without them
    import numpy as np
    import numpy.typing as npt

Vector: TypeAlias = "npt.NDArray[np.float32]"

MODELS = "models"
_SUFFIX = ".safetensors.zst"
_NAMES = r"[0-9a-f]{64}\.safetensors\.zst"
_HEADER_ALLOWANCE = 1 << 20
"""No header of ours is larger; bounds what a damaged file can make us unpack."""


def to_safetensors(layout: Layout, vector: Vector) -> bytes:
    """The canonical file of a model: its tensors sorted by name, no metadata."""
    import safetensors.numpy

    if vector.shape != (layout.size,) or vector.dtype != "float32":
        raise ValueError(f"a model is a float32 vector of {layout.size} numbers")
    tensors = {spec.name: vector[start:end].reshape(spec.shape) for spec, start, end in layout.spans()}
    return bytes(safetensors.numpy.save(dict(sorted([*tensors.items(), *_constants(layout).items()]))))


def _constants(layout: Layout) -> dict[str, npt.NDArray[Any]]:
    import numpy as np

    try:
        return {
            each.name: np.frombuffer(bytes.fromhex(each.data), np.dtype(each.dtype).newbyteorder("<"))
            .astype(each.dtype)
            .reshape(each.shape)
            for each in layout.constants
        }
    except (TypeError, ValueError) as error:
        raise IntegrityError(f"the whole numbers of the layout make no sense: {error}") from None


def from_safetensors(layout: Layout, data: bytes) -> Vector:
    """The vector of a canonical file; refuses a file of another layout."""
    import numpy as np
    import safetensors.numpy
    from safetensors import SafetensorError

    try:
        tensors = safetensors.numpy.load(data)
    except SafetensorError as error:
        raise IntegrityError(f"not a safetensors file: {error}") from None
    found = {name: tensor.shape for name, tensor in tensors.items()}
    constants = _constants(layout)
    expected = {spec.name: spec.shape for spec in layout.tensors}
    if found != expected | {name: value.shape for name, value in constants.items()}:
        raise IntegrityError("holds other tensors than this run's model")
    if any(not np.array_equal(tensors[name], value) for name, value in constants.items()):
        raise IntegrityError("holds other whole numbers than this run's model")
    return np.concatenate([tensors[spec.name].ravel() for spec in layout.tensors]).astype(np.float32, copy=False)


def mean_of(vectors: Sequence[Vector] | Vector) -> Vector:
    """The mean of models, rounded once."""
    import numpy as np

    mean: Vector = np.asarray(vectors).mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def digest_of(data: bytes) -> str:
    """The name of a model: SHA-256 of its canonical file, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


class ModelStore:
    """The files of models.

    Args:
        place: Where they lie; a path is a folder of a run.

    """

    def __init__(self, place: Path | Blobs) -> None:
        self.blobs: Blobs = Folder(place, _NAMES) if isinstance(place, Path) else place
        self._latest: tuple[str, Vector] | None = None

    @classmethod
    def of_run(cls, directory: Path, run_id: str) -> Self:
        """The store of a run, wherever that has its models."""
        return cls(blobs_of(directory, run_id, MODELS, _NAMES))

    @staticmethod
    def name(digest: str) -> str:
        """What the file of the model of that digest is called."""
        return f"{digest}{_SUFFIX}"

    @property
    def folder(self) -> Path:
        """The folder of the files, in a run that has them in its directory."""
        return folder_of(self.blobs)

    def path(self, digest: str) -> Path:
        """Where the model of that digest lies, in such a run."""
        return self.folder / self.name(digest)

    def write(self, layout: Layout, vector: Vector) -> tuple[str, int]:
        """Store a model durably; its digest and the bytes it takes. Storing it twice is storing it once."""
        data = to_safetensors(layout, vector)
        digest = digest_of(data)
        name = self.name(digest)
        stored_bytes = self.blobs.size(name)
        if stored_bytes is None:
            import zstandard

            packed = zstandard.ZstdCompressor(level=3).compress(data)
            self.blobs.write(name, packed)
            stored_bytes = len(packed)
        else:
            self.blobs.sync()  # whoever wrote it may have failed just before its name was durable
        self._latest = digest, vector.astype("float32")
        return digest, stored_bytes

    def read(self, layout: Layout, digest: str) -> Vector:
        """The model of that digest, checked against it."""
        return from_safetensors(layout, self.read_bytes(layout, digest))

    def recall(self, layout: Layout, digest: str) -> Vector:
        """The same; but the model written last, which is what a round asks for, comes from memory."""
        if self._latest is not None and self._latest[0] == digest:
            return self._latest[1].copy()
        return self.read(layout, digest)

    def read_bytes(self, layout: Layout, digest: str) -> bytes:
        """The canonical file of that digest, checked against it."""
        import zstandard

        name = self.name(digest)
        limit = 4 * layout.size + _HEADER_ALLOWANCE
        try:
            packed = self.blobs.read(name)
            if zstandard.frame_content_size(packed) > limit:
                raise IntegrityError(f"model file {name} is damaged: it claims to be larger than the model")
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=limit)
        except FileNotFoundError:
            raise IntegrityError(f"model file {name} is missing") from None
        except (zstandard.ZstdError, RunUnsafe) as error:
            raise IntegrityError(f"model file {name} is damaged: {error}") from None
        if digest_of(data) != digest:
            raise IntegrityError(f"model file {name} is damaged: its content has another digest")
        return data

    def digests(self) -> Iterator[str]:
        """The digests of all model files here."""
        return (name.removesuffix(_SUFFIX) for name in self.blobs.names() if not name.startswith("."))

    def stored_bytes(self, digest: str) -> int | None:
        """The bytes that the file of that digest takes; None where it is missing."""
        return self.blobs.size(self.name(digest))

    def leftovers(self, named: set[str]) -> list[str]:
        """Files that no row names: half-written ones, and models of rounds that were never recorded."""
        return self.blobs.names(beyond={self.name(digest) for digest in named})

    def strangers(self) -> list[str]:
        """What lies here and is no model file; it is left alone."""
        return self.blobs.others()

    def remove(self, names: Sequence[str]) -> None:
        """Delete files durably, and forget what was in them."""
        if self._latest is not None and self.name(self._latest[0]) in names:
            self._latest = None
        self.blobs.remove(names)
