from __future__ import annotations

from dataclasses import replace

import pytest

from disavow.privacy import sampling
from disavow.privacy.accountants import sampled, unconditional
from disavow.privacy.budget import Budget, claim_of
from disavow.privacy.calibration import Setting, sampled_tau, unconditional_tau
from disavow.privacy.events import Event, fixed_sizes

DESIGN = Setting(rounds=60, sizes=fixed_sizes(50, 10), clip=1.0)
FIXED = DESIGN.events(DESIGN.tau_of(1.0), fixed=True)
LOOSE = DESIGN.events(DESIGN.tau_of(1.0), fixed=False)


def allowed(budget: Budget, events: list[Event]) -> int:
    """How many of these rounds fit, asked round by round as a run does."""
    return next((n for n in range(len(events)) if not budget.allows(events[: n + 1])), len(events))


@pytest.mark.parametrize("events", [FIXED, LOOSE], ids=["fixed", "loose"])
@pytest.mark.parametrize("share", [0.35, 0.61, 0.999])
def test_it_stops_before_the_round_that_would_exceed_it_and_not_earlier(events: list[Event], share: float) -> None:
    accountant = sampled if events is FIXED else unconditional
    budget = Budget(share * (accountant(events, 1e-5).epsilon or 0), 1e-5)
    count = allowed(budget, events)
    assert 0 < count < len(events)
    assert budget.spent(events[:count]) <= budget.epsilon < budget.spent(events[: count + 1])
    assert budget.spent(events[:count]) == pytest.approx(accountant(events[:count], 1e-5).epsilon)


def test_calibrated_noise_lasts_for_the_rounds_it_was_calibrated_for() -> None:
    for fixed, tau in (
        (True, sampled_tau(DESIGN, 3.0, 1e-5)),
        (False, unconditional_tau(DESIGN, 3.0, 1e-5)),
    ):
        events = DESIGN.events(tau, fixed=fixed)
        assert Budget(3.0, 1e-5).allows(events)
        assert not Budget(3.0, 1e-5).allows([*events, events[0]])


def test_it_is_held_to_the_sampled_claim_only_while_all_clusters_are_fixed() -> None:
    assert (claim_of(FIXED), claim_of(LOOSE), claim_of([*FIXED, LOOSE[0]])) == (
        "sampled",
        "unconditional",
        "unconditional",
    )
    budget = Budget(2.0, 1e-5)
    assert budget.allows(FIXED)
    assert not budget.allows([*FIXED[:-1], LOOSE[0]])


def test_unequal_rounds_are_counted_as_they_are() -> None:
    events = [replace(event, weight=0.2 + event.number / 500) for event in FIXED[:2]]
    whole = sampled(events, 1e-5).epsilon or 0
    assert Budget(whole * 1.0001, 1e-5).allows(events)
    assert not Budget(whole * 0.9999, 1e-5).allows(events)
    many = [replace(event, weight=0.2 + event.number / 50_000) for event in FIXED[:34]]  # so many are grouped
    assert Budget(0.5, 1e-5).allows(many[:1])
    assert not Budget(0.5, 1e-5).allows(many)


def test_asking_after_every_round_composes_few_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    composed: list[sampling.Rounds] = []
    real = sampling._by_distributions.__wrapped__
    budget = Budget(0.7, 0.99e-5)  # of its own, so that nothing is remembered from another test

    def counting(rounds: sampling.Rounds, delta: float) -> float:
        composed.append(rounds)
        return real(rounds, delta)

    monkeypatch.setattr(sampling, "_by_distributions", counting)
    count = allowed(budget, FIXED)
    assert 30 < count < 60
    assert len(composed) < 20


def test_nothing_spent_is_nothing() -> None:
    assert Budget(1.0, 1e-5).spent([]) == 0.0
