"""The kernels as a shared library: built once for this machine with whatever C++ compiler it has, and kept.

The library lies in the user's cache, named after all that went into it: source, compiler, flags, processor.
Without a compiler there is none, and the trainers that need no compiler do the work.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from disavow.errors import how_to_install
from disavow.proof.keys import child_environment

_log = logging.getLogger(__name__)

_FLAGS = ("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC")
_COMPILERS = ("c++", "g++", "clang++")


class NoKernels(Exception):
    """The kernels cannot be built or loaded here. Says why."""


def load() -> ctypes.CDLL:
    """The library, built first if this machine has not built it yet."""
    source = resources.files("disavow.engines.compiled").joinpath("kernels.cpp").read_bytes()
    compiler = _compiler()
    path = _cache() / f"kernels-{_fingerprint(source, compiler)}.so"
    try:
        return _declare(ctypes.CDLL(str(path)))
    except OSError:
        pass  # not there yet, or damaged
    try:
        _build(source, compiler, path)
        return _declare(ctypes.CDLL(str(path)))
    except OSError as error:
        raise NoKernels(f"{path} cannot be used: {error}") from None


def _compiler() -> list[str]:
    """The compiler that $CXX names, the machine's own, or the one that the extra "compiler" installs."""
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen and shutil.which(chosen[0]):
        return chosen
    found = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    if found is not None:
        return [found]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "c++"]
    raise NoKernels(
        f"there is no C++ compiler here ({', '.join(_COMPILERS)}, or the one that $CXX names); to get one, "
        f"{how_to_install('compiler')}"
    )


def _fingerprint(source: bytes, compiler: list[str]) -> str:
    """Changes with anything that could change the library."""
    version = _run([*compiler, "--version"]).stdout
    hashed = hashlib.sha256(source)
    for part in (" ".join([*compiler, *_FLAGS]).encode(), version.encode(), _processor().encode()):
        hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.hexdigest()[:24]


def _processor() -> str:
    """What -march=native goes by."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    kinds = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    return "\n".join(sorted(kinds))


def _cache() -> Path:
    """A folder that only this user can write to: what lies there is loaded into the process."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "disavow" / "kernels"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError) as error:
        raise NoKernels(f"there is no place to keep them: {error}") from None
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise NoKernels(f"{folder} can be written to by others, so nothing is loaded from it")
    return folder


def _build(source: bytes, compiler: list[str], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        code, built = Path(scratch) / "kernels.cpp", Path(scratch) / "kernels.so"
        code.write_bytes(source)
        if "ziglang" in compiler:
            _log.warning("building kernels for this machine; this happens once and takes about a minute")
        done = _run([*compiler, *_FLAGS, "-o", str(built), str(code)])
        if done.returncode != 0:
            why = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
            raise NoKernels(f"{compiler[0]} could not build them: {why}")
        built.replace(path)  # whoever else builds at the same time ends with the same file


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler, which learns nothing of the operator's keys."""
    return subprocess.run(  # noqa: S603 - the machine's own compiler
        command, env=child_environment(), capture_output=True, text=True, errors="replace", check=False
    )


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    library.chain_create.restype = pointer
    library.chain_create.argtypes = [pointer, number, number]
    library.chain_destroy.restype = None
    library.chain_destroy.argtypes = [pointer]
    library.chain_train.argtypes = [pointer, pointer, pointer, number, *[pointer] * 4, number, *[real] * 3, pointer]
    library.chain_score.argtypes = [pointer, pointer, pointer, *[number], pointer, number, number, pointer]
    return library
