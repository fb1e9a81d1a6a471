from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from disavow.engines.compiled import build
from disavow.engines.compiled.build import NoKernels, load

UNOPTIMISED = tuple("-O0" if flag == "-O3" else flag for flag in build._FLAGS)
"""Takes a compiler a quarter of the time; whatever trains here is built as it is for users."""

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("c++", "g++", "clang++")), reason="there is no C++ compiler here"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build, "_FLAGS", UNOPTIMISED)
    return tmp_path / "disavow" / "kernels"


@needs_compiler
def test_the_library_is_built_once_and_kept_for_this_user_alone(cache: Path) -> None:
    load()
    (kept,) = cache.iterdir()
    built = kept.stat().st_mtime_ns
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    load()
    assert [path.stat().st_mtime_ns for path in cache.iterdir()] == [built]


def test_without_a_compiler_there_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("disavow.engines.compiled.build.find_spec", lambda name: None)
    with pytest.raises(NoKernels, match="no C\\+\\+ compiler"):
        load()


@needs_compiler
def test_a_compiler_that_pip_brought_serves_where_there_is_no_other(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # stands in for the package of the extra "compiler", which takes a hundred megabytes
    package = tmp_path / "packages" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    real = next(path for name in ("c++", "g++", "clang++") if (path := shutil.which(name)))
    search = os.environ["PATH"]
    (package / "__main__.py").write_text(
        "import os, sys\n"
        f"os.environ['PATH'] = {search!r}\n"
        f"assert sys.argv[1] == 'c++'\nos.execv({real!r}, [{real!r}, *sys.argv[2:]])\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("PATH", "")
    load()
    assert len(list(cache.iterdir())) == 1


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "fake"
    fake.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('out of cheese')\n")
    fake.chmod(0o700)
    monkeypatch.setenv("CXX", str(fake))
    with pytest.raises(NoKernels, match="could not build them: out of cheese"):
        load()
    assert list((tmp_path / "disavow" / "kernels").iterdir()) == []


def test_nothing_is_loaded_from_a_folder_that_others_can_write_to(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.raises(NoKernels, match="written to by others"):
        load()


@needs_compiler
def test_a_damaged_library_is_built_again(cache: Path) -> None:
    # in a process of its own: this one would keep the library it has loaded
    code = f"from disavow.engines.compiled import build; build._FLAGS = {UNOPTIMISED!r}; build.load()"
    subprocess.run([sys.executable, "-c", code], check=True)
    (kept,) = cache.iterdir()
    kept.write_bytes(b"not a library")
    assert load().chain_create is not None
    assert kept.stat().st_size > 1000


def test_a_cache_that_cannot_be_made_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with pytest.raises(NoKernels):
        load()
