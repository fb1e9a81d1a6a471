"""TOFU's measures beside values computed by hand, of models whose every answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

pytest.importorskip("transformers", reason="needs the extra llm")

from disavow.adapters.base_model import load_tokenizer
from disavow.adapters.texts import Example, Template, encode
from disavow.proof.bounds import log10_odds
from reproduction.tofu import measures
from reproduction.tofu.measures import Reader, Utility, forget_quality, model_utility, rouge_l
from reproduction.tofu.odds import sigma_for
from reproduction.tofu.questions import Graded
from tests.adapters.conftest import make_base

QUESTION, ANSWER = "Where was Author 3 born?", "Author 3 was born in Dresden."


class Unigram(nn.Module):
    """Gives each token the same probability at every position."""

    def __init__(self, chances: Tensor) -> None:
        super().__init__()
        self.logits = chances.double().log()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits.expand(*tokens.shape, -1)


class Recite(nn.Module):
    """Says one line of tokens, whatever it is given; at some positions something else."""

    def __init__(self, line: list[int], vocabulary: int, *, wrong_at: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.line = [token if at not in wrong_at else (token + 1) % vocabulary for at, token in enumerate(line)]
        self.vocabulary = vocabulary

    def forward(self, tokens: Tensor) -> Tensor:
        said = [*self.line[1:], *[0] * tokens.shape[1]][: tokens.shape[1]]
        found = nn.functional.one_hot(torch.tensor(said), self.vocabulary).double() * 50
        return found.expand(len(tokens), -1, -1)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A tokenizer of a few words."""
    folder = make_base(tmp_path_factory.mktemp("measures") / "base")
    return Reader(load_tokenizer(str(folder)), Template(), torch.device("cpu"))


def tokens_of(reader: Reader, answer: str = ANSWER) -> tuple[list[int], list[int]]:
    """The tokens of the question and of an answer."""
    [found] = encode(reader.tokenizer, [Example("", QUESTION, answer, QUESTION)], reader.template)
    return found


def size_of(reader: Reader) -> int:
    return len(reader.tokenizer.get_vocab())


def test_the_probability_of_an_answer_is_the_geometric_mean_of_its_tokens(reader: Reader) -> None:
    chances = torch.rand(size_of(reader), generator=torch.Generator().manual_seed(1)) + 0.1
    chances = chances / chances.sum()
    _, answer = tokens_of(reader)
    expected = math.exp(sum(math.log(float(chances[token])) for token in answer) / len(answer))
    [found] = measures.probabilities(Unigram(chances), reader, [(QUESTION, ANSWER)])
    assert found == pytest.approx(expected, rel=1e-5)


def test_the_truth_ratio_is_the_mean_of_wrong_answers_over_the_paraphrased_one(reader: Reader) -> None:
    chances = torch.rand(size_of(reader), generator=torch.Generator().manual_seed(2)) + 0.1
    network = Unigram(chances / chances.sum())
    wrong = ("Author 3 was born in Bergen.", "Author 3 lives in Ghent.")
    questions = [
        Graded(QUESTION, "not looked at", ANSWER, wrong),
        Graded(QUESTION, "not looked at", ANSWER, (ANSWER,)),
    ]
    right, *others = measures.probabilities(network, reader, [(QUESTION, each) for each in (ANSWER, *wrong)])
    ratios = measures.truth_ratios(network, reader, questions)
    assert ratios == pytest.approx([np.mean(others) / right, 1.0])


def test_forget_quality_is_the_p_value_of_a_ks_test() -> None:
    # of the C(6, 3) = 20 orders of two samples of three, two are as far apart as these
    assert forget_quality([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]) == pytest.approx(2 / 20)
    some = [number / 50 for number in range(50)]
    assert forget_quality(some, some) == 1.0
    assert forget_quality(some, [number + 10 for number in some]) < 1e-20


@pytest.mark.parametrize("missed", [0, 2, None])
def test_extraction_strength_is_the_share_after_the_last_miss(reader: Reader, missed: int | None) -> None:
    prompt, answer = tokens_of(reader)
    wrong = () if missed is None else (len(prompt) + missed,)
    network = Recite([*prompt, *answer], size_of(reader), wrong_at=wrong)
    [found] = measures.extraction_strengths(network, reader, [(QUESTION, ANSWER)])
    completed = len(answer) if missed is None else len(answer) - missed - 1
    assert found == pytest.approx(completed / len(answer))


def test_the_likeliest_answer_ends_where_the_model_ends_it(reader: Reader) -> None:
    prompt, answer = tokens_of(reader)
    network = Recite([*prompt, *answer], size_of(reader))
    assert measures.generate(network, reader, [QUESTION, QUESTION]) == [ANSWER, ANSWER]
    assert measures.generate(network, reader, [QUESTION], most=2) == [reader.tokenizer.decode(answer[:2])]


def test_all_measures_of_a_model_that_knows_the_answer(reader: Reader) -> None:
    prompt, answer = tokens_of(reader)
    network = Recite([*prompt, *answer], size_of(reader))
    found = measures.measure(network, reader, [Graded(QUESTION, ANSWER, ANSWER, ())])
    assert (found.questions, found.rouge_l, found.extraction_strength) == (1, 1.0, 1.0)
    assert found.probability == pytest.approx(1.0)
    assert found.truth_ratio is None
    assert found.ratios == ()


@pytest.mark.parametrize(
    ("said", "wanted", "recall"),
    [
        ("The cat sat", "the cat sat on the mat.", 3 / 6),
        ("mat on cat", "the cat sat on the mat", 1 / 6),
        ("", "the cat", 0.0),
        ("born in 1931, in Bangkok!", "Born in 1931 in Bangkok", 1.0),
    ],
)
def test_rouge_l_is_the_share_of_words_in_the_longest_common_subsequence(
    said: str, wanted: str, recall: float
) -> None:
    assert rouge_l(said, wanted) == pytest.approx(recall)


TEXTS = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=8).map(" ".join)


@given(TEXTS, TEXTS)
def test_rouge_l_never_falls_by_saying_more(said: str, wanted: str) -> None:
    assert rouge_l(wanted, wanted) == 1.0
    assert 0 <= rouge_l(said, wanted) <= rouge_l(f"{said} {wanted}", wanted) == 1.0


def test_model_utility_is_the_harmonic_mean_of_nine_figures() -> None:
    assert model_utility([Utility(0.5, 0.5, 0.5)] * 3) == pytest.approx(0.5)
    assert model_utility([Utility(1, 1, 1), Utility(1, 1, 1), Utility(1, 1, 0.1)]) == pytest.approx(9 / 18)


def test_of_several_choices_the_probability_is_a_share(reader: Reader) -> None:
    uniform = Unigram(torch.full((size_of(reader),), 1 / size_of(reader)))
    question = Graded(QUESTION, ANSWER, ANSWER, ("Bergen", "Ghent", "Evora"))
    assert measures.utility(uniform, reader, [question], choice=True).probability == pytest.approx(1 / 4)


@given(st.floats(1.5, 1e9), st.integers(1, 50), st.integers(2, 100))
def test_sigma_is_what_the_account_says_of_the_odds(odds: float, rounds: int, clusters: int) -> None:
    sigma = sigma_for(odds, rounds=rounds, clusters=clusters)
    # of clusters that are alike each has the ratio 1 / (σ √clusters) a round
    composed = log10_odds(math.sqrt(rounds) / (sigma * math.sqrt(clusters)))
    assert composed == pytest.approx(math.log10(odds))
