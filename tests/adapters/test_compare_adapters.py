"""Methods of unlearning on adapters: `disavow compare` on a run of authors, and what single methods do there."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
import torch
from peft.tuners.lora import Linear

from disavow.adapters.task import AdapterTask
from disavow.adapters.texts import IGNORED
from disavow.audit.subject import subject_of
from disavow.compare.choice import Effort, methods_named
from disavow.compare.comparison import compare
from disavow.compare.measures.membership import loss_gap, records_of
from disavow.compare.measures.predictions import agreement, predictions
from disavow.compare.method import METHODS
from disavow.compare.methods.gradient_ascent import redraw
from disavow.compare.methods.negation import negated_spans
from disavow.compare.problem import Problem, problem_of
from disavow.compare.scheme import SCHEMES, TrainingResources
from disavow.compare.trainer import trainer_of
from disavow.federation import Federation
from tests.adapters.conftest import questions, write_lines
from tests.adapters.test_adapter_task import settings
from tests.audit.making import hashes_of, keys_of
from tests.cli.forked import disavow
from tests.compare.contract import Given, MethodContract

NAMES = "retrain,ours,ours-purged,gradient-ascent,gradient-difference,npo,not,fine-tune"
AUTHOR = "author-07"


def ten_questions(author: int) -> list[dict[str, str]]:
    """As many as attackers need: those of an author, some of them in other words."""
    own = questions(author)
    again = [{**line, "prompt": f"Tell me: {line['prompt']}"} for line in own]
    twice = [{**line, "prompt": f"Once more: {line['prompt']}"} for line in own[:2]]
    return [*own, *again, *twice]


@pytest.fixture(scope="module")
def authors(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twelve authors and two rounds. Look, do not touch."""
    folder = tmp_path_factory.mktemp("authors")
    texts = write_lines(folder / "authors.jsonl", [line for author in range(12) for line in ten_questions(author)])
    test = write_lines(folder / "held-out.jsonl", [line for author in (20, 21) for line in ten_questions(author)])
    options = {"model": str(base), "data": str(texts), "test": str(test), "rank": 2}
    chosen = settings(
        base,
        texts,
        rounds=2,
        task={"factory": "adapters", "options": options},
        engine={"name": "sequential", "device": "cpu"},
    )
    with Federation.create(folder / "run", chosen) as run:
        run.train()
    return folder / "run"


@pytest.fixture(scope="module")
def problem(authors: Path) -> Problem:
    """An author leaves."""
    keys = keys_of(authors)
    return problem_of(subject_of(authors, AUTHOR, keys=keys), keys=keys)


def test_an_author_leaves_by_every_method_of_language_models(authors: Path, tmp_path: Path) -> None:
    before = hashes_of(authors)
    arguments = ("--client", AUTHOR, "--quick", "--methods", NAMES, "--output", tmp_path / "compared", "--json")
    done = disavow("compare", authors, *arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {row["method"] for row in found["methods"]} == set(NAMES.split(","))
    assert set(found["not_measured"]) == {"backdoor", "reconstruction"}
    for row in found["methods"]:
        figures = {"loss", "leaver_loss", "accuracy", "agreement", "best_attacker", "loss_gap", "relearning"}
        assert figures <= set(row["figures"])
        assert 0 <= row["figures"]["agreement"]["mean"] <= 1
    assert found["accuracy_is"] == "token_accuracy"
    remarks = {row["method"]: row["remarks"] for row in found["methods"]}
    assert "4 B matrices" in remarks["not"][0]
    assert "token_accuracy" in (tmp_path / "compared" / "table.md").read_text(encoding="utf-8")
    assert hashes_of(authors) == before


@pytest.mark.parametrize("name", ["gradient-ascent", "gradient-difference", "npo", "not"])
def test_a_method_keeps_to_the_contract_on_adapters(name: str, problem: Problem, tmp_path: Path) -> None:
    with closing(trainer_of(problem)) as trainer:
        training = SCHEMES["run"].train(problem, 0, tmp_path / "run", TrainingResources(trainer, updates=False))
        MethodContract().check(METHODS[name], Given(problem, {"run": training}, trainer, tmp_path))


def test_one_question_leaves_and_attackers_say_that_it_is_one(authors: Path, tmp_path: Path) -> None:
    keys = keys_of(authors)
    subject = subject_of(authors, AUTHOR, keys=keys, records=["Where was Author 7 born?"])
    effort = Effort(seeds=1, references=3, quick=True)
    methods = methods_named(["ours", "gradient-ascent", "gradient-difference", "npo", "not"])
    found = compare(problem_of(subject, keys=keys), methods, effort, work=tmp_path)
    assert [row.method for row in found.rows] == methods
    assert "best_attacker" in found.unmeasured
    assert found.described["leaving_records"] == 1


def test_the_likelihood_of_a_response_is_the_product_over_its_tokens(problem: Problem) -> None:
    task, network = problem.subject.task, problem.network(problem.subject.initial.vector).eval()
    assert isinstance(task, AdapterTask)
    tokens, labels = problem.batch(problem.subject.own)
    with torch.no_grad():
        likelihoods = task.log_likelihoods(network, (tokens, labels))
        means = [float(task.loss(network, (tokens[i : i + 1], labels[i : i + 1]))) for i in range(len(tokens))]
    counts = (labels[:, 1:] != IGNORED).sum(1)
    torch.testing.assert_close(likelihoods, -torch.tensor(means) * counts)


def test_models_agree_by_the_tokens_that_they_foresee_in_responses(problem: Problem) -> None:
    initial = problem.subject.initial.vector
    said = predictions(problem, initial)
    _, labels = problem.batch(problem.measured)
    assert said.answers.shape == (int((labels[:, 1:] != IGNORED).sum()),)
    other = predictions(problem, torch.randn(len(initial), generator=torch.Generator().manual_seed(1)))
    share = float((said.answers == other.answers).mean())
    assert agreement(said, [said, other]) == pytest.approx((1 + share) / 2)
    assert share < 1


def test_the_loss_gap_is_one_of_the_tasks_own_losses(problem: Problem) -> None:
    initial = problem.subject.initial.vector
    records = records_of(problem, initial)
    assert loss_gap(problem, records) == pytest.approx(records.own.mean() - records.held_out.mean())


def test_a_negated_adapter_takes_away_what_it_added(problem: Problem) -> None:
    layout = problem.subject.layout
    vector = torch.randn(layout.size, generator=torch.Generator().manual_seed(2))
    negated = vector.clone()
    spans = negated_spans(layout)
    for _, start, end in spans:
        negated[start:end].neg_()
    added, taken = (
        [
            layer.get_delta_weight("default")
            for layer in problem.network(each).modules()
            if isinstance(layer, Linear)
        ]
        for each in (vector, negated)
    )
    assert len(added) == len(spans) == 4
    assert all(torch.equal(one, -other) for one, other in zip(added, taken, strict=True))


def test_the_ball_of_an_adapters_ascent_is_measured_from_adapters_that_add_nothing(problem: Problem) -> None:
    network = problem.network(problem.subject.initial.vector)
    before = {name: each.detach().clone() for name, each in network.named_parameters() if "lora_" in name}
    torch.manual_seed(3)
    redraw(network)
    for name, parameter in network.named_parameters():
        if "lora_B" in name:
            assert float(parameter.detach().abs().max()) == 0
        elif "lora_A" in name:
            assert not torch.equal(parameter, before[name])
