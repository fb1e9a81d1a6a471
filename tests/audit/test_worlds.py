"""Worlds: real federations with secret draws of their own, kept one by one so that an audit can go on."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disavow import runs
from disavow.audit import worlds as worlds_module
from disavow.audit.game import Flags, Stage
from disavow.audit.signals import confidences
from disavow.audit.subject import Subject, subject_of
from disavow.audit.worlds import (
    Kind,
    World,
    WorldKey,
    held_by,
    secret_seed,
    standing_models,
    train_worlds,
    world_keys,
)
from disavow.engines.trainer import Trainer, VectorisedEngine
from disavow.erasure.dry_run import foresee
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.ledger import Ledger
from disavow.rounds.randomness import Secrets
from disavow.rounds.round import run_round
from tests.audit.making import CLIENT, Counting, Forbidden, Interrupted, interrupt_after, subject_in, trainer_of

SEED = 5
WORLD_KEYS = [WorldKey(kind, number) for kind in Kind for number in range(2)]

Kept = dict[str, dict[Stage, tuple[list[float], list[float], float, list[float], list[float]]]]


@pytest.fixture(scope="module")
def subject(broken: Path) -> Subject:
    return subject_in(broken)


@pytest.fixture(scope="module")
def trainer(subject: Subject) -> Iterator[Trainer]:
    with closing(trainer_of(subject)) as made:
        yield made


def trained(
    subject: Subject,
    folder: Path,
    trainer: Trainer,
    wanted: list[WorldKey] = WORLD_KEYS,
    on_round: Callable[[int], None] = lambda rounds: None,
) -> dict[Kind, list[World]]:
    return train_worlds(subject, wanted, folder, trainer=trainer, mechanism=Retrain(), seed=SEED, on_round=on_round)


def signals_by_world(worlds: dict[Kind, list[World]]) -> Kept:
    """Worlds as values that can be compared."""
    return {
        str(world.key): {
            stage: (
                seen.records.own.tolist(),
                seen.records.held_out.tolist(),
                seen.alignment,
                seen.weights.tolist(),
                seen.client_loss.tolist(),
            )
            for stage, seen in world.seen.items()
        }
        for each in worlds.values()
        for world in each
    }


@pytest.fixture(scope="module")
def whole(
    subject: Subject, trainer: Trainer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[Kind, list[World]]]:
    """What an uninterrupted call gives, and the folder it leaves."""
    folder = tmp_path_factory.mktemp("whole") / "worlds"
    return folder, trained(subject, folder, trainer)


# -- worlds -------------------------------------------------------------------------------------------------------


def test_half_of_the_worlds_have_the_client_and_as_many_are_retrained() -> None:
    wanted = world_keys(64, 32)
    assert Counter(key.kind for key in wanted) == {
        Kind.WITH: 32,
        Kind.WITHOUT: 32,
        Kind.RETRAINED: 32,
        Kind.SHADOW: 32,
    }
    assert len(set(wanted)) == len(wanted) == len({str(key) for key in wanted})


def test_more_of_them_include_those_there_were() -> None:
    """So that an audit with more worlds goes on with those of an earlier one."""
    assert set(world_keys(16, 4)) < set(world_keys(20, 8))


def test_every_record_is_held_by_exactly_half_of_the_shadows(subject: Subject) -> None:
    for records in (subject, replace(subject, held_out=subject.held_out[:-1])):
        held = np.stack([held_by(records, WorldKey(Kind.SHADOW, i), SEED) for i in range(8)])
        assert held.shape == (8, len(records.records))
        assert (held.sum(axis=0) == 4).all()
        assert (held[0::2] != held[1::2]).all()  # the next one holds the other half
        assert (np.abs(held.sum(axis=1) - len(records.records) / 2) <= 0.5).all()
        assert len({row.tobytes() for row in held}) == 8
    assert not np.array_equal(
        held_by(subject, WorldKey(Kind.SHADOW, 0), 1), held_by(subject, WorldKey(Kind.SHADOW, 0), 2)
    )


def test_no_two_worlds_share_secret_draws(subject: Subject) -> None:
    other = replace(subject, client="client-04")
    drawn = {secret_seed(who, key, seed) for who in (subject, other) for key in world_keys(8, 4) for seed in (1, 2)}
    assert len(drawn) == 2 * 2 * len(world_keys(8, 4))


# -- what a world is ---------------------------------------------------------------------------------------------


def by_hand(subject: Subject, key: WorldKey, directory: Path, trainer: Trainer, clients: list[str]) -> Ledger:
    """A run of these clients with a world's secret draws, one round after the other."""
    options = replace(runs.round_options(subject.settings), secrets=Secrets(secret_seed(subject, key, SEED)))
    ledger = Ledger.create(
        directory,
        policy=subject.policy,
        layout=subject.layout,
        initial=subject.initial.vector.numpy(),
        clients=clients,
        config="",
        created_by="tests",
        at=options.clock(),
    )
    engine = VectorisedEngine(subject.workload(), trainer)
    for _ in range(subject.rounds):
        run_round(ledger, engine, options)
    return ledger


@pytest.mark.parametrize("kind", [Kind.RETRAINED, Kind.WITHOUT])
def test_a_world_without_the_client_is_bit_for_bit_a_run_that_never_had_it(
    subject: Subject, trainer: Trainer, whole: tuple[Path, dict[Kind, list[World]]], tmp_path: Path, kind: Kind
) -> None:
    others = [client for client in subject.clients if client != CLIENT]
    for world in whole[1][kind]:
        with by_hand(subject, world.key, tmp_path / str(world.key), trainer, others) as ledger:
            last = standing_models(ledger)[-1]
            expected = confidences(subject, last)
        assert np.array_equal(world.seen[Stage.RETRAINED].weights, last.vector.numpy())
        assert world.verdict is None
        [seen] = [world.seen[Stage.RETRAINED]]
        assert np.array_equal(seen.records.own, expected.own)
        assert np.array_equal(seen.records.held_out, expected.held_out)


def test_a_world_with_the_client_really_erases_it(
    subject: Subject, trainer: Trainer, whole: tuple[Path, dict[Kind, list[World]]], tmp_path: Path
) -> None:
    for world in whole[1][Kind.WITH]:
        with by_hand(subject, world.key, tmp_path / str(world.key), trainer, list(subject.clients)) as ledger:
            expected = confidences(subject, standing_models(ledger)[-1])
            foreseen = foresee(ledger, [CLIENT], runs.round_options(subject.settings), Retrain())
        assert world.verdict == str(foreseen.verdict) == "rollback to round 1"
        before, served = world.seen[Stage.BEFORE], world.seen[Stage.SERVED]
        assert np.array_equal(before.records.own, expected.own)
        assert not np.array_equal(served.records.own, before.records.own)
        assert served.alignment != before.alignment


def test_a_deniable_world_serves_the_model_it_had(deniable: Path, tmp_path: Path) -> None:
    subject = subject_in(deniable)
    with closing(trainer_of(subject)) as trainer:
        [world] = trained(subject, tmp_path, trainer, [WorldKey(Kind.WITH, 0)])[Kind.WITH]
    before, served = world.seen[Stage.BEFORE], world.seen[Stage.SERVED]
    assert world.verdict == "deniable"
    assert np.array_equal(served.records.own, before.records.own)
    assert served.alignment == before.alignment


def test_worlds_of_one_kind_differ_in_their_secret_draws_only(
    subject: Subject, whole: tuple[Path, dict[Kind, list[World]]]
) -> None:
    for each in whole[1].values():
        one, two = (world.seen[max(world.seen)].records.own for world in each)
        assert one.shape == two.shape == subject.own.shape
        assert not np.array_equal(one, two)
    assert len({json.dumps(seen, sort_keys=True) for seen in signals_by_world(whole[1]).values()}) == len(
        WORLD_KEYS
    )


def test_a_shadow_knows_what_its_seat_holds_better(broken: Path, tmp_path: Path) -> None:
    """Rows and columns of the shadows belong together: with either shifted, nothing would be known better."""
    subject = subject_of(broken, CLIENT)
    training = subject.settings.training.model_copy(update={"epochs": 40, "batch_size": 8})
    subject = replace(
        subject,
        settings=subject.settings.model_copy(update={"training": training}),
        policy=replace(subject.policy, noise="none", sigma=0.0),
        clients=("client-02", CLIENT),
        parts={"client-02": subject.parts["client-02"][:8], CLIENT: subject.own},
        rounds=2,
    )
    wanted = [WorldKey(Kind.SHADOW, number) for number in range(4)]
    with closing(trainer_of(subject)) as trainer:
        shadows = trained(subject, tmp_path, trainer, wanted)[Kind.SHADOW]
    seen = [world.seen[Stage.RETRAINED].records for world in shadows]
    confidence = np.stack([np.concatenate([records.own, records.held_out]) for records in seen])
    confidence -= confidence.mean(axis=1, keepdims=True)
    held = np.stack([held_by(subject, world.key, SEED) for world in shadows])

    def gap(held: Flags) -> float:
        return float(np.mean(confidence[held]) - np.mean(confidence[~held]))

    assert gap(held) > 1.0
    assert all(gap(np.roll(held, shift, axis=1)) < 0.3 for shift in (1, -1, len(subject.own)))
    assert gap(np.roll(held, 1, axis=0)) < 0.3


# -- going on ----------------------------------------------------------------------------------------------------


def test_a_second_call_trains_nothing(subject: Subject, whole: tuple[Path, dict[Kind, list[World]]]) -> None:
    seen: list[int] = []
    again = trained(subject, whole[0], Forbidden(), on_round=seen.append)
    assert signals_by_world(again) == signals_by_world(whole[1])
    assert [world.verdict for world in again[Kind.WITH]] == [world.verdict for world in whole[1][Kind.WITH]]
    assert sum(seen) == len(WORLD_KEYS) * subject.rounds


def expected_clients(subject: Subject, wanted: list[WorldKey]) -> int:
    """How many clients are trained for these worlds: in every round, for alignments, and after a rollback."""
    rounds = subject.rounds
    without = dict.fromkeys((Kind.RETRAINED, Kind.WITHOUT), 5 * rounds + rounds)
    each = {**without, Kind.SHADOW: 6 * rounds + rounds, Kind.WITH: (6 * rounds + rounds) + (5 * rounds + rounds)}
    return sum(each[key.kind] for key in wanted)


@pytest.mark.parametrize("rounds", [1, 7])
def test_an_interrupted_call_is_gone_on_with(
    subject: Subject,
    trainer: Trainer,
    whole: tuple[Path, dict[Kind, list[World]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rounds: int,
) -> None:
    """Two worlds at a time: those that were complete are kept, and only the others trained."""
    monkeypatch.setattr(worlds_module, "_TOGETHER", 2)
    with pytest.raises(Interrupted):
        trained(subject, tmp_path, trainer, on_round=interrupt_after(2 * rounds))
    kept = sorted(path.name for path in tmp_path.iterdir())
    done = 2 * (rounds // subject.rounds)
    assert kept == sorted(f"{key}.json" for key in WORLD_KEYS[:done])  # and no scratch folder
    counting, seen = Counting(trainer), list[int]()
    assert signals_by_world(trained(subject, tmp_path, counting, on_round=seen.append)) == signals_by_world(
        whole[1]
    )
    assert sum(seen) == len(WORLD_KEYS) * subject.rounds
    assert counting.clients == expected_clients(subject, WORLD_KEYS[done:])


def test_when_a_world_cannot_be_kept_its_scratch_is_gone_all_the_same(
    subject: Subject, trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(worlds_module, "write_durably", full)
    with pytest.raises(OSError, match="No space") as raised:
        trained(subject, tmp_path, trainer, WORLD_KEYS[:2])
    assert list(tmp_path.iterdir()) == []
    assert raised.value.errno == 28


def test_what_a_killed_process_left_is_in_nobodys_way(
    subject: Subject, trainer: Trainer, whole: tuple[Path, dict[Kind, list[World]]], tmp_path: Path
) -> None:
    (tmp_path / "scratch" / str(WORLD_KEYS[0]) / "models").mkdir(parents=True)
    (tmp_path / "scratch" / str(WORLD_KEYS[0]) / "ledger.sqlite3").write_text("half")
    found = trained(subject, tmp_path, trainer, WORLD_KEYS[:1])
    assert signals_by_world(found) == {str(WORLD_KEYS[0]): signals_by_world(whole[1])[str(WORLD_KEYS[0])]}
    assert [path.name for path in tmp_path.iterdir()] == [f"{WORLD_KEYS[0]}.json"]


def test_nothing_kept_names_anybody(subject: Subject, whole: tuple[Path, dict[Kind, list[World]]]) -> None:
    files = list(whole[0].rglob("*"))
    assert len(files) == len(WORLD_KEYS)
    for path in files:
        assert all(client.encode() not in path.read_bytes() for client in subject.clients)


# -- damaged files -----------------------------------------------------------------------------------------------


def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda kept: {name: value for name, value in kept.items() if name != key}


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """A file whose first stage has been changed."""

    def edit(data: bytes) -> bytes:
        kept = json.loads(data)
        stage = sorted(kept["seen"])[0]
        kept["seen"][stage] = change(kept["seen"][stage])
        return json.dumps(kept).encode()

    return edit


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "not text": lambda data: b"\xff\xfe" + data,
    "null": lambda data: b"null",
    "a list": lambda data: b"[]",
    "no stages": lambda data: json.dumps({"seen": {}, "verdict": None}).encode(),
    "another stage": lambda data: data.replace(b'"served"', b'"retrained"').replace(b'"before"', b'"served"'),
    "unknown stage": lambda data: data.replace(b'"before"', b'"after"'),
    "one record less": edited(lambda seen: {**seen, "own": seen["own"][1:]}),
    "one record more": edited(lambda seen: {**seen, "held_out": [*seen["held_out"], 0.5]}),
    "records in rows": edited(lambda seen: {**seen, "own": [seen["own"]]}),
    "words": edited(lambda seen: {**seen, "own": ["much"] * len(seen["own"])}),
    "alignment missing": edited(without("alignment")),
    "weights missing": edited(without("weights")),
    "weights that are no base64": edited(lambda seen: {**seen, "weights": "?" + seen["weights"][1:]}),
    "one weight less": edited(lambda seen: {**seen, "weights": seen["weights"][16:]}),
    "half a weight": edited(lambda seen: {**seen, "weights": seen["weights"][:-4]}),
    "one client less": edited(lambda seen: {**seen, "client_loss": seen["client_loss"][1:]}),
    "alignment null": edited(lambda seen: {**seen, "alignment": None}),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_world_is_not_used(
    subject: Subject, whole: tuple[Path, dict[Kind, list[World]]], tmp_path: Path, how: str
) -> None:
    path = tmp_path / f"{WORLD_KEYS[0]}.json"
    path.write_bytes(DAMAGE[how]((whole[0] / path.name).read_bytes()))
    with pytest.raises(AssertionError, match="trained"):
        trained(subject, tmp_path, Forbidden(), WORLD_KEYS[:1])


def test_a_damaged_world_is_trained_again(
    subject: Subject, trainer: Trainer, whole: tuple[Path, dict[Kind, list[World]]], tmp_path: Path
) -> None:
    some = [WorldKey(Kind.WITH, 0), WorldKey(Kind.WITH, 1)]
    for key in some:
        data = (whole[0] / f"{key}.json").read_bytes()
        (tmp_path / f"{key}.json").write_bytes(DAMAGE["truncated"](data) if key.number else data)
    seen: list[int] = []
    found = signals_by_world(trained(subject, tmp_path, trainer, some, on_round=seen.append))
    assert found == {str(key): signals_by_world(whole[1])[str(key)] for key in some}
    assert seen == [subject.rounds] + [1] * subject.rounds  # one was there, one was trained
    assert signals_by_world(trained(subject, tmp_path, Forbidden(), some)) == found  # and is whole on disk now


def test_a_world_cut_off_anywhere_is_not_used(
    subject: Subject, whole: tuple[Path, dict[Kind, list[World]]], tmp_path: Path
) -> None:
    data = (whole[0] / f"{WORLD_KEYS[0]}.json").read_bytes()
    for length in random.Random(3).sample(range(len(data)), 8):
        (tmp_path / f"{WORLD_KEYS[0]}.json").write_bytes(data[:length])
        with pytest.raises(AssertionError, match="trained"):
            trained(subject, tmp_path, Forbidden(), WORLD_KEYS[:1])
