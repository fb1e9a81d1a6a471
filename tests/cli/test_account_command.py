"""`disavow account`, and what a privacy budget does to a run: as a person meets them."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from disavow.cli.account import account_for
from disavow.cli.forecast import AccountOptions, rounded_up
from disavow.config import load
from disavow.errors import ConfigError, RunMissing
from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from disavow.privacy.odds import sigma_for
from tests.cli import process
from tests.cli.forked import disavow
from tests.cli.process import assert_refused, write_config
from tests.conftest import SMALL
from tests.ledger.making import files_of
from tests.refusals import refuses

DESIGN = AccountOptions(rounds=50, clients=50, k=10, sigma=1.0, delta=1e-5)
FIRST_BYTES = {"a.png": b"\x89PNG\r\n\x1a\n", "a.PDF": b"%PDF", "a.svg": b"<?xml"}


def printed(capsys: pytest.CaptureFixture[str], question: AccountOptions, **more: Any) -> str:
    account_for(None, question, **{"plot": None, "as_json": False, **more})
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def figures(text: str) -> dict[str, str]:
    """Names and figures of the table."""
    table = text.split("what it counts\n")[1].partition("\n\n")[0]
    lines = [line for line in table.splitlines() if line[:38].strip()]
    return {line[:38].strip(): line[38:48].strip() for line in lines}


# -- a run that is only thought of -------------------------------------------------------------------------------


def test_the_figures_of_the_design_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, DESIGN)
    assert figures(out) == {
        "plain": "54.38",
        "drawing": "3.202",
        "sampled": "0.7684",
        "replaced, by Rényi divergences": "3.175",
        "unconditional": "191.5",
        "paper's theorem": "25.79",
        "truly, with its analysis noise σ·2Δ": "54.38",
        "truly, with Algorithm 1's noise σ·Δ": "159.4",
    }
    said = " ".join(out.split())
    assert "50 rounds, 50 clients in 5 clusters of 10, δ = 1e-05" in said
    assert "204 times the largest update (√d·τ/C, d = 51,902, lenet5): no useful model" in said
    assert "against an observer of the global models only (no log, no proof, no spreads)" in said
    assert "sampled assumes: anchored clusters" in said
    assert "the sensitivity is 2Δ, so its Lemma 2 gives α/(2σ²)" in said
    assert all(len(line) <= 100 for line in out.splitlines())


def test_json_holds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(capsys, DESIGN, as_json=True))
    assert (document["plain"], document["drawing"]) == (
        pytest.approx(54.38, abs=0.01),
        pytest.approx(3.202, abs=0.01),
    )
    assert document["cluster_sizes"] == [10] * 5
    assert document["tau"] == pytest.approx(2 / math.sqrt(5))
    assert (document["parameters"], document["useful"]) == (51_902, False)
    claims = {claim["name"]: claim for claim in document["claims"]}
    assert list(claims) == ["unconditional", "sampled", "paper"]
    assert claims["paper"]["refuted"]
    assert all(claim["observer"] and claim["assumptions"] for claim in claims.values())


def test_several_representatives_take_their_part_of_the_noise(capsys: pytest.CaptureFixture[str]) -> None:
    one, three = (
        json.loads(printed(capsys, replace(DESIGN, representatives=number), as_json=True)) for number in (1, 3)
    )
    assert three["tau"] == pytest.approx(one["tau"] / 3)
    epsilons = [{claim["name"]: claim["epsilon"] for claim in each["claims"]} for each in (one, three)]
    # drawn three times as often; and where clusters may depend on the data, all that is drawn may change
    assert epsilons[1]["sampled"] > epsilons[0]["sampled"]
    assert epsilons[1]["unconditional"] > epsilons[0]["unconditional"]


def test_clusters_that_do_not_come_out_even_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, AccountOptions(rounds=5, clients=53, k=10, sigma=2.0, parameters=100))
    assert "53 clients in 5 clusters of 10 to 11" in out
    assert "the largest weight is 0.2075" in " ".join(out.split())
    assert "17.9 times the largest update (√d·τ/C, d = 100)." in " ".join(out.split())


def test_the_noise_for_eight_unconditional_is_1934_times_the_clip(capsys: pytest.CaptureFixture[str]) -> None:
    question = AccountOptions(rounds=50, clients=50, k=10, epsilon=8.0)
    out = printed(capsys, question)
    assert "√d·τ/C, against the largest update (d = 51,902, lenet5)" in out
    assert "1,934 times: no useful model" in out
    assert all(len(line) <= 100 for line in out.splitlines())
    noise = json.loads(printed(capsys, question, as_json=True))["noise"]
    assert noise["unconditional"]["noise_over_largest_update"] == pytest.approx(1934, abs=1)
    # what is printed keeps to the figure
    for name, found in noise.items():
        back = AccountOptions(rounds=50, clients=50, k=10, sigma=found["sigma"])
        claims = json.loads(printed(capsys, back, as_json=True))["claims"]
        [epsilon] = [claim["epsilon"] for claim in claims if claim["name"] == name]
        assert 7.99 < epsilon <= 8.0


@pytest.mark.parametrize("tau", [0.3212208, 8.4885209, 1.0, 0.99999999, 1234567.8, 1e-7])
def test_noise_is_rounded_up(tau: float) -> None:
    assert tau <= rounded_up(tau) <= tau * (1 + 2e-4)
    assert len(f"{rounded_up(tau):.10g}".replace(".", "").lstrip("0").rstrip("0").split("e")[0]) <= 6


BRIEF = AccountOptions(rounds=3, clients=50, k=10, sigma=1.0, parameters=9)
SOUGHT = AccountOptions(rounds=1, clients=50, k=10, epsilon=4.0, parameters=9)


@pytest.mark.parametrize(
    ("question", "name"),
    [
        (BRIEF, "a.png"),
        pytest.param(SOUGHT, "a.PDF", marks=pytest.mark.torture),
        pytest.param(BRIEF, "a.svg", marks=pytest.mark.torture),
    ],
    ids=["png", "pdf", "svg"],
)
def test_a_plot_is_written_beside_the_table(
    question: AccountOptions, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(capsys, question, plot=tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(FIRST_BYTES[name])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"rounds": None}, ["--rounds"]),
        ({"k": None}, ["--k"]),
        ({"rounds": 0}, ["--rounds is 0", "100,000"]),
        ({"clients": 1}, ["--clients is 1", "10,000,000"]),
        ({"k": 1}, ["--k is 1", "50"]),
        ({"k": 51}, ["--k is 51", "50"]),
        ({"sigma": 0.0}, ["--sigma is 0.0", "1,000,000"]),
        ({"sigma": math.nan}, ["--sigma is nan", "1,000,000"]),
        ({"sigma": None}, ["--sigma"]),
        ({"epsilon": 1.0}, ["--sigma is 1.0"]),
        ({"sigma": None, "epsilon": -1.0}, ["--epsilon is -1.0", "1e+12"]),
        ({"sigma": None, "epsilon": math.inf}, ["--epsilon is inf", "1e+12"]),
        (
            {"sigma": None, "epsilon": 1e-9},
            ["--epsilon is 1e-09", "δ = 1e-05"],
        ),
        ({"delta": 0.0}, ["--delta is 0.0"]),
        ({"delta": 1.0}, ["--delta is 1.0"]),
        ({"clip": 0.0}, ["--clip is 0.0", "1e-12"]),
        ({"clip": 1e-320}, ["--clip is 1e-320", "1e-12"]),
        ({"parameters": 0}, ["--parameters is 0", "1,000,000,000,000,000"]),
        ({"parameters": 5, "model": "lenet5"}, ["--model is lenet5", "--parameters"]),
        ({"model": "vgg"}, ["--model is vgg", "convnet, lenet5, resnet-mini"]),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    changed: dict[str, Any], named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with refuses(ConfigError, *named):
        printed(capsys, AccountOptions(**{**DESIGN.__dict__, **changed}))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "name",
    ["a.gif", "missing/a.png", "folder.png"],
)
def test_a_plot_that_cannot_be_written_is_refused_first(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.png").mkdir()
    with refuses(ConfigError, f"--plot is {tmp_path / name}"):
        printed(capsys, DESIGN, plot=tmp_path / name)


def test_odds_over_all_rounds_have_their_noise_and_their_observer(capsys: pytest.CaptureFixture[str]) -> None:
    said = " ".join(printed(capsys, AccountOptions(rounds=50, odds=10.0)).split())
    assert 'noise.mode "sensitivity", noise.sigma 6.6777, and deniability.odds 10' in said
    assert "against whoever sees all models of standing rounds, the log and every update" in said
    document = json.loads(printed(capsys, AccountOptions(rounds=50, odds=10.0), as_json=True))
    assert document["sigma"] == 6.6777
    assert document["least_confidence"] == pytest.approx(0.916, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "more", "said"),
    [
        ({"rounds": None}, {}, "--rounds is not set"),
        ({"odds": 1.0}, {}, "--odds is 1.0"),
        ({"clients": 50}, {}, "--clients is 50"),
        ({}, {"plot": Path("a.png")}, "--plot is a.png"),
    ],
)
def test_odds_are_asked_for_with_rounds_alone(
    options: dict[str, Any], more: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with refuses(ConfigError, said):
        printed(capsys, replace(AccountOptions(rounds=50, odds=10.0), **options), **more)


def test_a_run_keeps_to_the_odds_that_were_chosen_for_every_client(tmp_path: Path) -> None:
    noise = {"mode": "sensitivity", "sigma": sigma_for(10.0, SMALL["rounds"])}
    with Ledger.open(made(tmp_path, noise=noise, deniability={"x": 2, "odds": 10.0})) as ledger:
        odds = ledger.odds()
    assert odds is not None
    assert odds.worst_composed is not None
    assert 0.5 < odds.worst_composed <= 1


def test_the_command_line_refuses_with_exit_2() -> None:
    result = process.disavow("account", "--rounds", "50", "--clients", "50", "--k", "60", "--sigma", "1")
    assert_refused(result, ConfigError, "--k is 60", "50")


# -- runs ----------------------------------------------------------------------------------------------------------


def settings(tmp_path: Path, **changed: Any) -> Path:
    values = {**SMALL, "draws": "fresh", **changed}
    return write_config(tmp_path / "config.toml", values)


def train(tmp_path: Path, **changed: Any) -> subprocess.CompletedProcess[str]:
    return disavow("train", settings(tmp_path, **changed), "--run", tmp_path / "run")


def made(tmp_path: Path, **changed: Any) -> Path:
    """A run trained in this process, which is quicker."""
    with Federation.create(tmp_path / "run", load(settings(tmp_path, **changed))) as run:
        run.train()
    return tmp_path / "run"


def of_run(capsys: pytest.CaptureFixture[str], run: Path, delta: float | None = None) -> tuple[str, dict[str, Any]]:
    """Its account in words and as JSON, made in this process."""
    account_for(run, AccountOptions(delta=delta), plot=None, as_json=False)
    words = capsys.readouterr().out
    account_for(run, AccountOptions(delta=delta), plot=None, as_json=True)
    return words, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("mode", "reason"), [("paper", "depends on the data"), ("none", "there is no noise")])
def test_noise_without_a_figure_says_why_and_exits_0(
    tmp_path: Path, mode: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path, noise={"mode": mode})
    before = files_of(tmp_path)
    result = disavow("account", run)
    assert (result.returncode, result.stderr) == (0, "")
    words, document = of_run(capsys, run)
    assert result.stdout == words
    assert f'No differential-privacy figure: noise.mode "{mode}"' in words
    assert reason in " ".join(words.split())
    assert [claim["epsilon"] for claim in document["claims"]] == [None] * 3
    assert len(document["events"]) == 3
    with refuses(ConfigError, "figure"):
        account_for(run, AccountOptions(), plot=tmp_path / "a.png", as_json=False)
    assert files_of(tmp_path) == before


def test_other_options_do_not_go_with_a_run(trained: Path) -> None:
    result = disavow("account", trained, "--sigma", "1")
    assert_refused(result, ConfigError, "--sigma is 1.0", "RUN")


def test_no_run_is_exit_2(tmp_path: Path) -> None:
    assert_refused(disavow("account", tmp_path), RunMissing, tmp_path)


CALIBRATED = {"mode": "calibrated", "clip": 1.0, "tau": 2.0}


def test_seeded_draws_make_every_claim_void(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, document = of_run(capsys, made(tmp_path, draws="seeded", noise=CALIBRATED))
    assert 'Every claim below is void: draws = "seeded"' in words
    assert words.count("void;") == 3
    assert document["void"] is True
    assert all(claim["void"] for claim in document["claims"])


def test_data_dependent_clusters_make_the_sampled_claim_hypothetical(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path, noise=CALIBRATED)
    words, document = of_run(capsys, run, delta=1e-6)
    claims = {claim["name"]: claim for claim in document["claims"]}
    assert (claims["sampled"]["hypothetical"], claims["unconditional"]["hypothetical"]) == (True, False)
    assert document["delta"] == 1e-6
    assert document["budget"] is None
    assert "hypothetical; the draw counts" in words
    assert "clusters were not fixed" in " ".join(words.split())
    drawn = process.disavow("account", run, "--plot", tmp_path / "a.png", "--delta", "1e-6")
    assert (drawn.returncode, drawn.stdout) == (0, words)
    assert (tmp_path / "a.png").read_bytes().startswith(FIRST_BYTES["a.png"])


# -- a budget ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["mdav", "fixed"])
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run whose budget was enough for three of six rounds, and what its training said."""
    folder = tmp_path_factory.mktemp(request.param)
    noise, epsilon = ({**CALIBRATED, "tau": 4.0}, 4.0) if request.param == "mdav" else (CALIBRATED, 0.7)
    result = train(
        folder,
        rounds=6,
        clustering={"k": 3, "method": request.param},
        noise=noise,
        privacy={"epsilon": epsilon},
    )
    assert result.returncode == 9
    return folder / "run", result.stdout + result.stderr


@pytest.fixture
def spent(stopped: tuple[Path, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped[0], tmp_path / "run"))


def test_training_stops_before_the_round_with_a_clear_message_and_a_usable_model(
    stopped: tuple[Path, str], tmp_path: Path
) -> None:
    run, said = stopped
    assert "error DSV-602: the privacy budget is spent: ε is " in said
    assert "and round 4 would make it" in said
    assert "3 of 6 rounds stand, the model of round 3 is usable and served, and erasures are still honoured" in said
    assert "3 rounds, accuracy" in said
    assert fsck(run) == []
    assert process.disavow("export", run, "-o", tmp_path / "model.safetensors").returncode == 0
    with Ledger.open(run) as ledger:
        assert len(ledger.events()) == 3


def test_status_and_account_show_what_is_spent(
    stopped: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = stopped
    words, document = disavow("status", run).stdout, json.loads(disavow("status", run, "--json").stdout)
    fixed = document["policy"]["clustering"] == "fixed"
    assert document["budget"]["claim"] == ("sampled" if fixed else "unconditional")
    assert 0 < document["budget"]["spent"] <= document["budget"]["epsilon"]
    assert f"of {document['budget']['epsilon']:g} spent at δ = 1e-05 ({document['budget']['claim']} claim)" in words
    assert "3 of 6; no more can be trained: the privacy budget is spent" in words
    _, account = of_run(capsys, run)
    claims = {claim["name"]: claim["epsilon"] for claim in account["claims"]}
    assert account["budget"]["spent"] == pytest.approx(claims[document["budget"]["claim"]])


def test_resuming_says_the_same_and_changes_nothing(spent: Path) -> None:
    before = [summary.after for summary in summaries(spent)]
    result = disavow("resume", spent)
    assert result.returncode == 9
    assert "the privacy budget is spent" in result.stderr
    assert [summary.after for summary in summaries(spent)] == before


def summaries(run: Path) -> list[Any]:
    with Ledger.open(run) as ledger:
        return list(ledger.summaries())


def test_a_budget_cannot_be_raised_afterwards(spent: Path) -> None:
    text = (spent / "config.toml").read_text(encoding="utf-8")
    (spent / "config.toml").write_text(text.replace("epsilon = ", "epsilon = 1"), encoding="utf-8")
    assert_refused(disavow("resume", spent), ConfigError, spent / "config.toml")


def test_a_deniable_request_is_answered_at_once(spent: Path) -> None:
    result = disavow("erase", spent, "client-01")
    assert result.returncode == 0, result.stderr
    assert "deniable" in result.stdout
    assert [summary.standing for summary in summaries(spent)] == [True] * 3
    assert fsck(spent) == []


def test_a_rollback_is_honoured_without_retraining_and_foretold(
    spent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.open(spent) as ledger:
        together = ledger.membership(1)[0]
    foretold = disavow("erase", spent, *together, "--dry-run")
    assert foretold.returncode == 0
    assert "it cannot be retrained (the privacy budget is spent: ε is" in foretold.stdout
    assert "the initial model is served" in foretold.stdout
    result = disavow("erase", spent, *together, "--yes")
    assert result.returncode == 0, result.stderr
    assert "rollback to round 1; not retrained: the privacy budget is spent" in result.stdout
    assert [summary.standing for summary in summaries(spent)] == [False] * 3
    assert fsck(spent) == []
    words, _ = of_run(capsys, spent)
    assert "3 rounds executed, 3 of them superseded" in words
    assert disavow("resume", spent).returncode == 9
