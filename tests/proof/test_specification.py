"""The examples of the specification, by the second verifier."""

import json
import re

import pytest

from tests.proof import second_verifier as second
from tests.proof.second_opinion import KEY, KEY_TEXT, PRIVATE, ROOT, SALT, Object, encode, first, sign, sign_note


def document() -> str:
    return (ROOT / "docs" / "proof-format.md").read_text(encoding="utf-8").partition("\n## Worked examples\n")[2]


def given(label: str) -> str:
    """What the specification writes behind a label."""
    found = re.findall(rf"^{re.escape(label)} {{2,}}(\S+)$", document(), re.MULTILINE)
    assert len(found) == 1, label
    return str(found[0])


def blocks() -> list[str]:
    return re.findall(r"```text\n(.*?)```", document(), re.DOTALL)


def joined(start: str) -> Object:
    """An object of the specification that is broken into lines."""
    block = next(block for block in blocks() if block.startswith(start))
    text = block.partition("\n\n")[0].replace("\n ", "").partition("   ")[0]
    value: Object = second.parse_canonical(text.encode(), 10_000)
    return value


def test_trees_of_the_specification() -> None:
    h0, h1, h2 = (second.leaf_hash(data) for data in (b"", b"a", b"ab"))
    assert second.root_of([]).hex() == given("root()")
    assert h0.hex() == given('h0 = leaf("")')
    assert h1.hex() == given('h1 = leaf("a")')
    assert h2.hex() == given('h2 = leaf("ab")')
    assert second.node(h0, h1).hex() == given("node(h0, h1)")
    root = second.root_of([h0, h1, h2])
    assert root.hex() == given("root(h0 h1 h2)")
    assert second.follow(h0, 0, 3, [encode(h1), encode(h2)]) == root
    assert second.follow(h1, 1, 3, [encode(h0), encode(h2)]) == root
    assert second.follow(h2, 2, 3, [encode(second.node(h0, h1))]) == root


def test_commitments_of_the_specification() -> None:
    slot = second.slot_commitment("run-1", 1, SALT, "client-07", second.sha(b"update"))
    assert slot.hex() == given("slot commitment")
    assert encode(slot) == given("the same in base64")
    assert second.request_commitment("run-1", SALT, "client-07").hex() == given("request commitment")
    assert second.rounds_commitment(SALT, [1, 3]).hex() == given("rounds commitment, leaves 1, 3")
    assert second.rounds_commitment(SALT, []).hex() == given("rounds commitment, no leaves")
    assert second.NOBODY.hex() == given("value of an untouched round")


def test_cluster_and_map_of_the_specification() -> None:
    cluster = joined('{"first"')
    slot = bytes.fromhex(given("slot commitment"))
    shown = {**cluster, "slots": [encode(slot)] * 2}
    assert second.cluster_hash(cluster) == second.cluster_hash(shown)
    assert second.cluster_hash(shown).hex() == given("leaf(json(cluster))")
    inner = second.withdrawn_inner(SALT, 4)
    entry = second.withdrawn_entry(0, inner)
    value = second.counted(1, entry)
    assert inner.hex() == given("inner(salt, 4)")
    assert entry.hex() == given("entry(0, inner)")
    assert value.hex() == given("value of a round with it alone")
    both = [second.leaf_hash(value), second.leaf_hash(second.NOBODY)]
    assert second.root_of(both).hex() == given("map of these two rounds")


def test_bounds_of_the_specification() -> None:
    pattern = (
        r"weight (\S+), spread (\S+) and τ (\S+) with (\d) representatives give displacement `(\S+)`,\s+"
        r"ratio (\S+) and log10_odds\s+`(\S+)`"
    )
    found = re.search(pattern, document())
    assert found is not None
    cluster, drawn = {"weight": found[1], "spread": found[2]}, int(found[4])
    ratio = second.ratio_of(cluster, float(found[3]), drawn)
    assert second.figure_of(second.displacement_of(cluster, drawn)) == found[5]
    assert ratio == float(found[6])
    assert second.figure_of(second.log10_odds_of(ratio)) == found[7]
    chance = re.search(r"Clusters of (\d+) and (\d+) give\s+drawn `(\S+)`", document())
    assert chance is not None
    shown = [{"size": int(chance[1])}, {"size": int(chance[2])}]
    assert second.figure_of(second.drawn_of(shown, drawn)) == chance[3]


def test_decimals_and_figures_of_the_specification() -> None:
    text = (ROOT / "docs" / "proof-format.md").read_text(encoding="utf-8")
    kinds = text.partition("**Decimals.**")[2].partition("## Merkle trees")[0]
    decimals, figures = kinds.partition("**Figures**")[::2]
    good, bad = decimals.partition("Examples:")[2].partition("Refused:")[::2]
    for written in re.findall(r"`([^`]+)`", good):
        second.decimal(written)
    for written in re.findall(r"`([^`]+)`", bad):
        with pytest.raises(second.UnreadableError):
            second.decimal(written)
    for written, origin in re.findall(r"`([^`]+)`(?: \(of ([0-9.]+)\))?", figures.partition("Examples:")[2]):
        second.figure(written)
        assert second.figure_of(float(origin or written)) == written


def smallest() -> Object:
    """The statement of the smallest proof, made as the specification says."""
    leaf = joined('{"created_at"')
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "urn:disavow:what-if:v3",
        "subject": [{"name": "model.safetensors", "digest": {"sha256": leaf["initial_model"]}}],
        "predicate": {
            "checkpoint": sign_note("disavow/run/run-1", [leaf]),
            "leaves": [leaf],
            "withdrawal": None,
            "request": None,
            "rounds": None,
            "maps": [],
            "clusters": [],
            "bounds": {"displacement": "0", "ratio": "0", "drawn": "0"},
            "verdict": {"from": None, "kind": "never present"},
            "times": None,
        },
    }


def test_smallest_proof_of_the_specification() -> None:
    assert KEY.public.hex() == given("public key")
    assert KEY.id == given("id")
    assert given("key") == KEY_TEXT
    assert second.parse_key(KEY_TEXT) == KEY
    statement = smallest()
    leaf = statement["predicate"]["leaves"][0]
    assert second.leaf_hash(second.canonical(leaf)).hex() == given("leaf hash")
    assert statement["predicate"]["checkpoint"] in blocks()
    payload = second.canonical(statement)
    assert str(len(payload)) == given("bytes")
    assert second.sha(payload).hex() == given("SHA-256")
    proof = sign(statement)
    assert json.loads(proof)["signatures"][0]["sig"] == given("sig")
    assert f"The envelope has {len(proof):,} bytes" in document()
    assert second.verify(proof, KEY_TEXT.encode(), what_if=True) == (3, None)
    assert second.verify(proof, KEY_TEXT.encode()) == (1, 3)


def test_cosignature_of_the_specification() -> None:
    [witness] = second.parse_witnesses(given("witness key").encode())
    assert (witness.name, witness.public) == ("witness.example.net", KEY.public)
    note = smallest()["predicate"]["checkpoint"]
    signed = f"cosignature/v1\ntime 1769860800\n{note.partition(chr(10) * 2)[0]}\n".encode()
    data = witness.short + (1_769_860_800).to_bytes(8, "big") + PRIVATE.sign(signed)
    line = f"\u2014 {witness.name} {encode(data)}\n"
    assert line in blocks()
    kept = f"{note}{line}".encode()
    given_files: Object = {"keys": KEY_TEXT.encode(), "what_if": True, "checkpoint": kept}
    for verify in (second.verify, first):
        assert verify(sign(smallest()), witnesses=given("witness key").encode(), **given_files) == (3, None)


def test_a_key_list_of_the_first_version_has_no_revocations() -> None:
    entry = {"key": KEY_TEXT, "from": "2026-01-31T12:00:00.000000+00:00", "until": None}
    listed = {"type": "disavow/keys/v1", "keys": [entry]}
    assert second.parse_keys(second.canonical(listed)) == [second.Trusted(KEY, entry["from"], None, None)]
    for wrong in ({**listed, "type": "disavow/keys/v2"}, {**listed, "keys": [{**entry, "revoked": None}]}):
        with pytest.raises(second.UnreadableError):
            second.parse_keys(second.canonical(wrong))


# (2) The vectors
