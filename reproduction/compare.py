"""`python -m reproduction.compare`: the rows of the tables in docs/compare.md, one run and one comparison each."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from disavow import config
from disavow.cli import run as run_app
from disavow.cli.base import Json, new_app
from disavow.cli.options import require
from disavow.cli.output import Bar, print_json, progress
from disavow.federation import Federation

app = new_app("reproduction.compare")

HERE = Path(__file__).parent
IMAGES = {"mnist": "mnist", "cifar10": "cifar10", "digits": "digits"}
NETWORKS = ("lenet5", "resnet-mini")
PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {"partition": "iid"},
    "dirichlet": {"partition": "dirichlet", "alpha": 0.3},
}
TCGA = ("tcga-brca-deaths", "tcga-brca-cox")

_ROUNDS = 30
_TRAINING = {"epochs": 3, "batch_size": 128, "learning_rate": 0.02}
_DIGITS = {"epochs": 3, "batch_size": 8, "learning_rate": 0.1}
_PATIENTS = {"epochs": 3, "batch_size": 8, "learning_rate": 0.03}
"""One region in three is drawn each round: with larger steps a single round can undo the training."""


def rows() -> list[str]:
    """Name all rows: data, partition and network; then patients."""
    images = [f"{data}-{part}-{network}" for data in IMAGES for part in PARTITIONS for network in NETWORKS]
    return [*images, *TCGA]


def settings_of(row: str, *, seed: int, patients: Path, device: str) -> dict[str, Any]:
    """Give the settings of a row's run.

    Args:
        row: One of `rows`.
        seed: Of the run.
        patients: The folder of Fed-TCGA-BRCA.
        device: Where it is trained.

    """
    common = {"seed": seed, "engine": {"device": device}, "deniability": {"x": 2}}
    if row in TCGA:
        cox = row.endswith("cox")
        path = HERE.parent / "examples" / "tcga-brca" if cox else HERE
        task = {
            "factory": "tcga:TcgaBrca" if cox else "tcga_deaths:build",
            "path": str(path),
            "options": {"folder": str(patients.resolve())},
        }
        return {**common, "rounds": 20, "task": task, "clustering": {"k": 3}, "training": _PATIENTS}
    data, partition, network = row.split("-", 2)
    small = data == "digits"
    return {
        **common,
        "rounds": 10 if small else _ROUNDS,
        "data": {"name": IMAGES[data], "clients": 20 if small else 50, **PARTITIONS[partition]},
        "model": {"name": network},
        "clustering": {"k": 4},
        "noise": {"sigma": 0.005},
        "training": _DIGITS if small else _TRAINING,
    }


@app.command()
def compare(
    row: Annotated[
        list[str], typer.Option(help="A row, such as mnist-iid-lenet5 or tcga-brca-deaths; several times for more.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where tables and figures go, a folder a row.")] = Path(
        "build/compare"
    ),
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where runs and pieces are kept, to go on with. [default: OUT/.work]"),
    ] = None,
    methods: Annotated[str, typer.Option(metavar="NAMES", help="Methods, with commas between them.")] = "all",
    seeds: Annotated[int | None, typer.Option(help="Trainings of each scheme. [default: 3]")] = None,
    references: Annotated[int | None, typer.Option(help="Exact retrainings of each scheme. [default: 5]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed and less effort.")] = False,
    seed: Annotated[int, typer.Option(help="Of the run.")] = 1,
    client: Annotated[str | None, typer.Option(help="Who leaves. [default: the first client]")] = None,
    tcga_brca: Annotated[
        Path, typer.Option(metavar="DIR", help="Where brca.csv, centers.csv and train_test_split.csv lie.")
    ] = Path("../shared/data/tcga-brca"),
    device: Annotated[str, typer.Option(help="Where to train: auto, cpu or cuda.")] = "auto",
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Processes that work on a row.")] = 1,
    json: Json = False,
) -> None:
    """Train the run of a row, and compare all methods on its first client; what is interrupted goes on.

    Images are looked for in `DISAVOW_DATA_DIR`. Updates are recomputed, so that every method can be compared.

    **Example:** `DISAVOW_DATA_DIR=data python -m reproduction.compare --row mnist-iid-lenet5`

    **Example:** `python -m reproduction.compare --row digits-iid-lenet5 --quick`
    """
    from disavow.cli import compare as command
    from disavow.compare.choice import Effort, allowed, methods_named
    from disavow.compare.comparison import compare as compare_on
    from disavow.compare.comparison import count_pieces

    for name in row:
        require(name in rows(), "row", name, ", ".join(rows()))
    effort = Effort.chosen(seeds, references, quick=quick, recompute=True)
    names = [name.strip() for name in methods.split(",") if name.strip()]
    console = progress()
    for name in row:
        place = (work or out / ".work") / f"{name}-{seed}"
        directory, keys = place / "run", place / "keys"
        train(name, directory, keys, seed=seed, patients=tcga_brca, device=device)
        with Federation.open(directory, keys=keys) as trained:
            leaver = client or trained.ledger.clients()[0]
        problem = command.prepare(directory, leaver, keys=keys)
        named = bool(names) and "all" not in names
        usable, skipped = allowed(problem, methods_named(names), effort, named=named)
        with Bar(console, name, count_pieces(problem, usable, effort)) as shown:

            def on_piece(piece: str, shown: Bar = shown) -> None:
                shown.update(shown.done + 1, what=piece)

            found = compare_on(
                problem,
                usable,
                effort,
                work=place / "pieces",
                skipped=skipped,
                named=named,
                processes=command.in_processes(jobs, directory, leaver, keys=keys),
                on_piece=on_piece,
            )
        command.write_output(found, out / name)
        console.print(f"{name}: {found.seconds:.0f} s, {out / name}")
        if json:
            print_json(found.to_json())


def train(row: str, directory: Path, keys: Path, *, seed: int, patients: Path, device: str) -> None:
    """Train a row's run, or go on with it.

    Args:
        row: Its name.
        directory: Where it lies, or is to lie.
        keys: The folder of its keys.
        seed: Of the run.
        patients: The folder of Fed-TCGA-BRCA.
        device: Where it is trained.

    """
    values = settings_of(row, seed=seed, patients=patients, device=device)
    train_settings(config.from_values(values, source=row), directory, keys)


def train_settings(settings: config.Settings, directory: Path, keys: Path) -> None:
    """Train a run, unless it is trained already.

    Args:
        settings: Of the run.
        directory: Where it lies, or is to lie.
        keys: The folder of its keys.

    """
    if directory.exists():
        with Federation.open(directory, keys=keys) as found:
            if found.ledger.last_round >= settings.rounds:
                return
        shutil.rmtree(directory)  # a run takes less time than its comparison: it is begun anew
    directory.parent.mkdir(parents=True, exist_ok=True)
    with Federation.create(directory, settings, keys=keys) as started:
        started.train()


if __name__ == "__main__":
    run_app(app)
