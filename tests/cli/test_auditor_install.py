"""`pip install disavow` without extras is small: it verifies, and says what it lacks for more."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from disavow import config
from disavow.data import client_ids
from disavow.erasure.proof_files import default_openings, opening_path, proof_path
from disavow.errors import how_to_install
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.proof.notes import Signer
from tests.cli.process import environment
from tests.erasure.mechanisms.contract import LAYOUT, ToyEngine, leave, toy_settings
from tests.rounds.builders import MOMENT

SOURCE = Path(__file__).parents[2] / "src"
RUN_MAIN = "from disavow.cli import main; main()"
ABSENT = ("torch", "numpy", "scipy", "sklearn", "sqlalchemy", "alembic", "safetensors", "zstandard", "matplotlib")
OF_CRYPTOGRAPHY = {"_openssl", "_cffi_backend"}
"""Modules that its compiled part registers, which no RECORD lists."""
SIGNER = Signer("fl.example", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


@dataclass(frozen=True)
class Auditor:
    """An environment with nothing but the base requirements of disavow, and a proof to verify in it."""

    python: Path
    folder: Path
    names: frozenset[str]

    @property
    def verify(self) -> tuple[str, ...]:
        files = ("proof.json", "--key", "signing.pub", "--opening", "opening.json")
        return ("verify", *(str(self.folder / name) if "." in name else name for name in files))

    def disavow(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`disavow`, as the entry point of the installed package runs it."""
        return self.run("-c", RUN_MAIN, *arguments)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in environment().items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [self.python, *arguments],
            cwd=self.folder,
            env={**kept, "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def words_printed(self, code: str) -> list[str]:
        """What a piece of Python prints there, as JSON."""
        result = self.run("-c", code)
        assert result.returncode == 0, result.stderr
        found: list[str] = json.loads(result.stdout)
        return found


def base_requirements(name: str) -> set[str]:
    """All that installing a distribution brings along, itself included: markers evaluated, extras ignored."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        current = canonicalize_name(waiting.pop())
        if current in found:
            continue
        found.add(current)
        for text in importlib.metadata.requires(current) or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


def top_level_of(name: str) -> set[Path]:
    """The packages, modules and metadata of a distribution, as its RECORD lists them."""
    distribution = importlib.metadata.distribution(name)
    home = Path(str(distribution.locate_file("")))
    parts = {path.parts[0] for path in distribution.files or [] if path.parts[0] != ".." and not path.is_absolute()}
    return {home / part for part in parts if part != "__pycache__" and not part.startswith("__editable__")}


def modules_of(name: str) -> set[str]:
    """What a distribution can be imported as."""
    return {path.name.partition(".")[0] for path in top_level_of(name) if not path.name.endswith(".dist-info")}


@pytest.fixture(scope="module")
def auditor(tmp_path_factory: pytest.TempPathFactory) -> Auditor:
    folder = tmp_path_factory.mktemp("auditor")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=120)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "venv" / "lib" / version / "site-packages"
    names = base_requirements("disavow")
    for name in names:
        for path in top_level_of(name):
            (packages / path.name).symlink_to(path)
    (packages / "disavow-source.pth").write_text(f"{SOURCE}\n")
    prove(folder)
    return Auditor(folder / "venv" / "bin" / "python", folder, frozenset(names))


def prove(folder: Path) -> None:
    """A toy run of which one client leaves: its proof, its opening and the public key."""
    settings = toy_settings()
    ledger = Ledger.create(
        folder / "run",
        policy=settings.policy,
        layout=LAYOUT,
        initial=np.linspace(-1, 1, LAYOUT.size, dtype=np.float32),
        clients=client_ids(settings.data.clients),
        config=config.to_toml(settings),
        created_by="tests",
        at=MOMENT,
        signer=SIGNER,
    )
    keys, engine = folder / "keys", ToyEngine(settings.seed)
    with Federation(ledger.directory, settings, ledger, keys, own_engine=engine) as run:
        run.train()
        leave(run, "client-05")
    (folder / "proof.json").write_bytes(proof_path(folder / "run", 1).read_bytes())
    opening = opening_path(default_openings(folder / "run"), ledger.run_id, 1)
    (folder / "opening.json").write_bytes(opening.read_bytes())
    (folder / "signing.pub").write_text(f"{SIGNER.public}\n")


def test_the_base_requirements_are_few(auditor: Auditor) -> None:
    assert {"disavow", "cryptography", "typer", "rich"} <= auditor.names
    assert not auditor.names & set(ABSENT)
    assert len(auditor.names) <= 20, sorted(auditor.names)


def test_nothing_that_trains_can_be_imported_there(auditor: Auditor) -> None:
    there = auditor.words_printed(
        "import importlib.util, json\n"
        f"print(json.dumps([name for name in {ABSENT!r} if importlib.util.find_spec(name) is not None]))"
    )
    assert there == []


def test_pydantic_is_there_only_if_typer_asks_for_it_and_no_code_of_ours_imports_it(auditor: Auditor) -> None:
    own = {
        canonicalize_name(Requirement(text).name)
        for text in importlib.metadata.requires("disavow") or []
        if "extra ==" not in text
    }
    assert own == {"cryptography", "typer", "rich"}
    there = auditor.words_printed(
        "import importlib.util, json; print(json.dumps([n for n in ['pydantic'] if importlib.util.find_spec(n)]))"
    )
    assert there == [name for name in base_requirements("typer") if name == "pydantic"]
    imported = auditor.words_printed(
        "import disavow.cli.verify, disavow.cli.show_proof, json, sys; print(json.dumps(sorted(sys.modules)))"
    )
    assert "pydantic" not in imported  # typer may still import it when it runs


def test_a_proof_is_verified_there(auditor: Auditor) -> None:
    result = auditor.disavow(*auditor.verify)
    assert (result.returncode, result.stderr) == (0, "")
    assert "VALID proof about 'client-05'." in result.stdout
    result = auditor.disavow("show-proof", str(auditor.folder / "proof.json"))
    assert (result.returncode, result.stderr) == (0, "")
    result = auditor.disavow("verify", str(auditor.folder / "opening.json"), "--key", auditor.verify[3])
    assert result.returncode == 2


def test_a_key_is_made_there(auditor: Auditor, tmp_path: Path) -> None:
    result = auditor.disavow("keygen", "--folder", str(tmp_path / "keys"), "--no-passphrase")
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "keys" / "signing.pem").exists()


def test_a_witness_can_be_run_there(auditor: Auditor, tmp_path: Path) -> None:
    made = auditor.disavow(
        "witness", "--key", str(tmp_path / "w.pem"), "--new-key", "--name", "w.example.net", "--no-passphrase"
    )
    assert (made.returncode, made.stderr) == (0, "")
    log = f"disavow/run/*={tmp_path / 'w.pem.pub'}"  # the key of a witness is no key of a log
    state = ("--state", str(tmp_path / "seen"), "--log", log)
    assert auditor.disavow("witness", "--key", str(tmp_path / "w.pem"), *state).returncode == 2


def test_help_and_version_are_told_there(auditor: Auditor) -> None:
    for arguments in (("--help",), ("--version",), ("verify", "--help"), ("train", "--help")):
        result = auditor.disavow(*arguments)
        assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "config.toml", "--run", "new"),
        ("resume", "run"),
        ("status", "run"),
        ("fsck", "run"),
        ("erase", "run", "client-01"),
        ("requests", "run"),
        ("prove", "run", "client-01", "-o", "out.json"),
        ("receipt", "run", "client-01", "-o", "out"),
        ("demo",),
        ("plan", "--clients", "10", "--rounds", "2", "--k", "3", "--x", "2"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_that_needs_more_says_which_extra(auditor: Auditor, arguments: tuple[str, ...]) -> None:
    before = set(auditor.folder.iterdir())
    result = auditor.disavow(*arguments)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("error DSV-102: this command needs ")
    trains = arguments[0] in ("init", "train", "resume", "demo", "plan")
    assert line.endswith(how_to_install("train" if trains else "ledger"))
    assert set(auditor.folder.iterdir()) == before


def test_verifying_imports_nothing_but_the_standard_library_and_the_base_requirements(auditor: Auditor) -> None:
    allowed = set(sys.stdlib_module_names) | {"__main__", "__mp_main__", "disavow"}
    for name in auditor.names:
        allowed |= modules_of(name)
    proof = sorted(path.stem for path in (SOURCE / "disavow" / "proof").glob("*.py") if path.stem != "__init__")
    statements = "; ".join(f"import disavow.proof.{name}" for name in proof)
    imported = auditor.words_printed(
        f"import sys, json; {statements}; import disavow.cli.verify, disavow.cli.show_proof, disavow.cli.witness\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    assert set(imported) - allowed - OF_CRYPTOGRAPHY == set()


def test_the_proof_package_alone_imports_cryptography_and_nothing_else(auditor: Auditor) -> None:
    """Also what `disavow/__init__.py` brings along, and no other package of disavow than these."""
    proof = sorted(path.stem for path in (SOURCE / "disavow" / "proof").glob("*.py") if path.stem != "__init__")
    statements = "; ".join(f"import disavow.proof.{name}" for name in proof)
    imported = auditor.words_printed(
        f"import sys, json; {statements}\n"
        "print(json.dumps(sorted(name for name in sys.modules if '.' not in name or name.startswith('disavow.'))))"
    )
    allowed = (
        set(sys.stdlib_module_names) | {"__main__", "disavow"} | modules_of("cryptography") | modules_of("cffi")
    )
    outside = {name for name in imported if "." not in name} - allowed
    assert outside - OF_CRYPTOGRAPHY == set()
    inside = {name for name in imported if name.startswith("disavow.") and not name.startswith("disavow.domain.")}
    below = {"disavow.domain", "disavow.durable_files", "disavow.errors"}
    assert inside == {*below, "disavow.proof", *(f"disavow.proof.{n}" for n in proof)}


def test_verifying_reaches_for_no_network_and_starts_no_process(auditor: Auditor) -> None:
    watched = (
        "import sys\n"
        "def refuse(event, arguments):\n"
        "    if event.startswith(('socket.', 'subprocess.', 'os.exec', 'os.fork', 'os.posix', 'os.system')):\n"
        "        raise SystemExit(f'{event}: {arguments}')\n"
        "sys.addaudithook(refuse)\n"
        f"sys.argv = ['disavow', *{list(auditor.verify)!r}]\n"
    )
    result = auditor.run("-c", watched + RUN_MAIN)
    assert (result.returncode, result.stderr) == (0, "")
