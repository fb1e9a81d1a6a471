"""Modules are called what an engineer of the field would search for: ordinary words, or words of the glossary."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "disavow"

ORDINARY = """
    adapter adapters child durable export model process runner
    access accountants after aggregate alignment answers api app ascent ask assemble attackers audit
    authentication averages backdoor backend base batched batches batching before blobs bounds broadcast
    bucket budget build by cache calibration callbacks canonical catalogue chain charts check checks choice cli
    clustering commands commitment compare comparison compiled config convnet copying cosigning creation cuda
    current curves data database dataset decision declarations decode deliveries demo difference digits
    distances distillation document domain dropout dry elements env envelope epsilon erase error errors escaping
    evidence exclusions factory facts fats fedaccum federaser fedrecover files filing findings fine fixed flower
    folder folders follow forecast forecasting forecasts forgetting forging fsck fused game gaussian geometry
    gradient graphs heads history hub id identity images init initial inspection intervals journal judge key
    keygen keyring keys kmeans layers layout leaves lenet5 level limitations lira listing loading local lock log
    login lookup loss mdav measures members membership memory merkle messages metered method methods metrics
    migrations mini mlflow models monitor negation network node nodes noise notes npo nvrtc objectives oidc open
    opendsr opened ours output overview pack pages parameters participation partition partitioners passphrase
    parallel pdf perturb pieces pkcs8 placement plan planted plot pool postgres power precision predictions privacy
    problem progress protection protocol prove pseudonyms randomness rapid reader reconstruction record records
    relearning removal rendering replies report reporting reproducibility resnet responses restored results
    retention retrain retraining roc roster rows run runs sampled samples sampling schema sealed search secrets
    sequential serve server services serving settings sgd shards show sifu signals simulated sources sqlite
    stack stacked state statement states static status step sticky store stored strategies stream study subject
    summary table tensorboard texts theorem threads tiling toml tracing tracker tracking train trained trainer
    training transaction tune user validation vectors verification verifier verify versions views warming watch
    watching webhooks without word wording work worker workload written
"""
# what PyTorch, SQLAlchemy, statistics, cryptography or plain English call it

METAPHORS = "leash lessons letters places seat seats shower slope told"
# words of an earlier private vocabulary, also where the glossary has them for something else

NOT_AS_NAMES = {*METAPHORS.split(), "asked", "for_runs", "taking_up"}
FIELDS = {"asked_at", "asked_again_at"}  # of proofs, and of the register of requests


def glossary() -> set[str]:
    """The words that the glossary explains, in the singular and in the plural."""
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.M)
    words = {word for row in rows for word in re.findall(r"[a-z]+", row.lower())}
    return words | {f"{word}s" for word in words}


def words_of_modules() -> dict[str, set[str]]:
    """The words in the names of modules and packages, with where they are used."""
    found: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        name = path.parent.name if path.stem.startswith("__") else path.stem
        for word in re.findall(r"[a-z][a-z0-9]*", name):
            found.setdefault(word, set()).add(str(path.relative_to(SOURCES)))
    return found


def test_modules_are_called_ordinary_or_in_the_glossary() -> None:
    known = {*ORDINARY.split(), *glossary(), "disavow"} - set(METAPHORS.split())
    assert {word: sorted(where) for word, where in words_of_modules().items() if word not in known} == {}


def test_no_ordinary_word_is_listed_that_no_module_has() -> None:
    assert sorted(set(ORDINARY.split()) - set(words_of_modules())) == []


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What a program calls its own or others' things, with the line of each: variables, attributes, parameters,
    functions, classes, keyword arguments and what is imported under another name.
    """
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname"):
            if isinstance(name := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), name


def is_forbidden(name: str) -> bool:
    """Whether a name does not say what it holds: one of the earlier vocabulary, or made of `told` or `asked`."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    plain = "_".join(words).lower()
    return name not in FIELDS and (plain in NOT_AS_NAMES or not {"told", "asked"}.isdisjoint(plain.split("_")))


def test_no_name_is_of_the_earlier_vocabulary() -> None:
    found = {
        f"{path.relative_to(SOURCES)}:{line}": name
        for path in sorted(SOURCES.rglob("*.py"))
        for line, name in identifiers(ast.parse(path.read_text(encoding="utf-8")))
        if is_forbidden(name)
    }
    assert found == {}


def test_names_of_the_earlier_vocabulary_are_found_wherever_they_stand() -> None:
    program = """def taking_up(told, *, places=1):
        class _Asked(a.seat):
            x = f(leash=f'{_told}')
        _TOLD_OF = asked_at"""
    found = {name for _, name in identifiers(ast.parse(program)) if is_forbidden(name)}
    assert found == {"taking_up", "told", "places", "_Asked", "seat", "leash", "_told", "_TOLD_OF"}
