"""One small run, trained once for each worker and copied for each test that needs a run of its own."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_limits

from disavow.ledger.keyring import FOLDER
from tests import database_option
from tests.cli import forked
from tests.kill.erasure_driver import Driver
from tests.local_s3 import bucket, s3_client, s3_server

__all__ = ["bucket", "s3_client", "s3_server"]

SMALL: dict[str, Any] = {
    "seed": 7,
    "rounds": 3,
    "draws": "seeded",
    "data": {"clients": 8},
    "model": {"name": "convnet"},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 3},
}
"""Two clusters a round, about 60 ms a round."""


MEMORY = Path("/dev/shm")
ROOM = 2 * 2**30
"""What all tests together leave behind is well below it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database", choices=["sqlite", "postgres"], default="sqlite", help="where the tests' runs keep their rows"
    )


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # imports and tests, a million objects, are looked through in vain while they are collected
    _keep_temporary_files_in_memory()
    server = database_option.start(config)
    config.add_cleanup(lambda: database_option.stop(server))


def _keep_temporary_files_in_memory() -> None:
    """On a disk a run waits for it as long as it computes.

    Not where somebody chose a folder by TMPDIR, nor where memory has too little room or lets no library be loaded.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK | os.X_OK):
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= ROOM and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if database_option.on_postgres():
        for item in items:
            if item.get_closest_marker("sqlite"):
                item.add_marker(pytest.mark.skip(reason="is about SQLite's own files"))


def pytest_collection_finish() -> None:
    """From here on garbage is collected, without looking again and again through what is imported."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keys and a cache of its own, never the operator's; and one thread, because two workers share two cores."""
    # whoever starts the tests in the background may have them ignore Ctrl-C, and their children with them
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    keys = tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISAVOW_KEYS", str(keys))
        patch.setenv("DISAVOW_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # or every child process compiles all modules anew
        torch.set_num_threads(1)
        # BLAS is loaded already and does not look at the environment again; its idle threads wait in a busy loop
        with threadpool_limits(1):
            yield keys


@pytest.fixture(autouse=True)
def _keyrings(_alone: Path) -> Iterator[None]:
    """Tests copy one run again and again, and every copy goes by its keyring: so it is put back behind each."""
    keyrings = _alone / FOLDER
    before = {folder: _content(folder) for folder in keyrings.glob("*")}
    yield
    for folder in keyrings.glob("*"):
        if _content(folder) != before.get(folder):
            shutil.rmtree(folder)
    for folder, files in before.items():
        if not folder.exists():
            folder.mkdir(mode=0o700)
            for name, data in files.items():
                (folder / name).touch(mode=0o600)
                (folder / name).write_bytes(data)


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run of `SMALL`. Look, do not touch: every test of this worker shares it."""
    from disavow import config
    from disavow.federation import Federation

    directory = tmp_path_factory.mktemp("trained") / "run"
    with Federation.create(directory, config.from_values(SMALL, source="tests")) as run:
        run.train()
    return directory


@pytest.fixture
def run_dir(trained: Path, tmp_path: Path) -> Path:
    """A copy of `trained`, to be damaged at will."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(scope="session")
def driver() -> Driver:
    """The process that forks one for each command, started once for each worker."""
    return forked.driver()
