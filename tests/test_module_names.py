"""Modules are called what an engineer of the field would search for: ordinary words, or words of the glossary."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "disavow"

ORDINARY = """
    accountants admission after aggregate alignment app architecture arguments arithmetic arrays attackers
    audit base batches before bounds broadcast buckets budget build by cache calibration cancel canonical
    catalogue check class cli client clustering columns commands commitment compiled config convnet convolution
    copying creation curves data database dataset declarations decode delivery demo difference digest digits
    distances domain dry engines env envelope epsilon erase erasure errors escaping evaluation events evidence
    exchange extras federaser federation files findings fixed flower folder forging fsck fused game gaussian
    geometry graphs history hub identity images init initial intervals journal judge key keygen keys kmeans
    launcher layout leaves lenet5 level lira local lock log loss main mdav mechanisms memory merkle message
    migrations mini models network nodes noise notes options output parameters participation partition
    partitioners passphrase perturb pkcs8 plan plot pool power privacy programs progress prove randomness reader
    rebuilt record report reporting resnet retention retrain roc rows run runs sampling schedule schema scores
    screening sequential session settings show signals similarity simulated size spending stack stacked state
    statement status step sticky strategies stream study subject summary theorem thinning threads
    toml tracing train trained trainer training transaction updates vectorised vectors verify versions
    work worker workload
"""
# what PyTorch, SQLAlchemy, statistics, cryptography or plain English call it

TEMPORARY = """
    absent chain choice claimed declined division examination keeping kinds launch maps names not
    parts places prospect reading repetition returned roster together trial trust ways withdrawn
"""
# still to be renamed; nothing may be added

METAPHORS = "leash lessons letters places seat seats shower slope told"
# words of an earlier private vocabulary, also where the glossary has them for something else


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
    known = {*ORDINARY.split(), *glossary(), "disavow"} - set(METAPHORS.split()) | set(TEMPORARY.split())
    assert {word: sorted(where) for word, where in words_of_modules().items() if word not in known} == {}


def test_no_word_is_excused_that_no_module_has() -> None:
    assert sorted(set(TEMPORARY.split()) - set(words_of_modules())) == []
