"""What was decided about a request and what was not promised, for people who know nothing of machine learning."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from disavow.domain import Approval, EventKind, RequestState, VerdictKind, escaped
from disavow.evidence.facts import Facts
from disavow.proof.summary import count_records
from disavow.wording import day, limits_of, meaning_of


class Outcome(StrEnum):
    """How a decision is marked at first sight."""

    GRANTED = "granted"
    INTERIM = "interim"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True)
class Decision:
    """What somebody reads first.

    Args:
        outcome: How it is marked.
        sentence: The decision in one sentence.
        meaning: What it means, a paragraph each.
        not_promised: What it does not promise, each beginning with "That".

    """

    outcome: Outcome
    sentence: str
    meaning: tuple[str, ...]
    not_promised: tuple[str, ...]


def decision_of(facts: Facts) -> Decision:
    """Say what was decided about a request.

    Args:
        facts: What is known about it.

    """
    state = facts.request.state
    if state is RequestState.ANSWERED:
        return _granted(facts)
    if state in (RequestState.REFUSED, RequestState.CANCELLED):
        return _closed(facts)
    return _open(facts)


# -- granted -------------------------------------------------------------------------------------------------------


def _granted(facts: Facts) -> Decision:
    step = "Granted" if facts.in_model or facts.request.approximate else "Granted and complete"
    if facts.purge_due is not None:
        step = "Granted in a first step"
    return Decision(
        Outcome.INTERIM if facts.purge_due is not None else Outcome.GRANTED,
        f"{step}: {_removed(facts)}{_model(facts)}",
        tuple(filter(None, (_consequence(facts), _why(facts), *_afterwards(facts)))),
        _not_promised(facts),
    )


def _removed(facts: Facts) -> str:
    """What became of who asked."""
    records = facts.request.records
    if records is None:
        return "the client was removed from the training, and the record of who it was is destroyed"
    verb = "was" if records == 1 else "were"
    return f"{count_records(records)} of a client {verb} excluded from the training, and the client itself stays"


def _model(facts: Facts) -> str:
    """What became of the model, as the end of the sentence."""
    request, verdict = facts.request, facts.request.verdict
    it = "it" if request.records is None else "what the client had contributed before"
    if facts.trained_out_at is not None:
        return f". On {_day(facts.trained_out_at)} the model was trained again without {it}."
    if facts.purge_due is not None:
        return (
            f". The model is to be trained again without {it} by {_day(facts.purge_due)}; that has not "
            "happened yet."
        )
    if verdict is None or verdict.kind is VerdictKind.NEVER_PRESENT:
        return ". Nothing of it was in the model, which was not changed."
    if verdict.kind is VerdictKind.DENIABLE:
        return (
            ". The model was kept as it is, not trained again."
            if facts.in_model
            else ". Nothing of it is in the model any more."
        )
    if request.cost is not None and not request.cost.rounds:
        return f". The model was taken back to before round {verdict.undoes}, and not trained again."
    how = "rebuilt approximately" if request.approximate else "trained again"
    since = f" from round {verdict.undoes} on; what it learned before was kept" if facts.in_model else ""
    return f". The model was {how} without {it}{since}."


def _consequence(facts: Facts) -> str:
    """What the answer means whatever the verdict."""
    if facts.request.records is not None:
        return (
            "The client trains on without these records. What it contributed while it held them is treated as if "
            "it had left, and cannot be linked to it any more."
        )
    return (
        "The client takes no part in the training any more. The key that tied it to the training was destroyed: "
        "the records do not say any more which contributions came from it, unless the client shows its own file, "
        "called the opening."
    )


def _why(facts: Facts) -> str:
    """Why the model was left as it is, or changed."""
    verdict, others = facts.request.verdict, facts.policy.x
    if facts.trained_out_at is None or verdict is None or verdict.kind is not VerdictKind.DENIABLE:
        return meaning_of(facts.as_view(), facts.policy_view())
    return (
        f"Until {_day(facts.trained_out_at)} the model stayed as it was, because in each of the groups that the "
        f"client had been in at least {others} others remained who could have been drawn in its place."
    )


def _afterwards(facts: Facts) -> list[str]:
    """What happened since, or is still to happen."""
    found, request = [], facts.request
    if facts.trained_out_at is not None:
        it, before = ("it", "") if request.records is None else ("the records", " from before the request")
        found.append(
            f"On {_day(facts.trained_out_at)} every training round in which the client had had a part was undone, "
            f"and trained again without {it}. No contribution of the client{before} is in the model used now."
        )
    if facts.purge_due is not None:
        found.append(
            f"By {_day(facts.purge_due)} the training rounds in which it had a part are to be undone and trained "
            "again without it. A second proof will say so."
        )
    if facts.at_risk is not None:
        found.append(f"It is not certain that this is done in time: {facts.at_risk}.")
    if facts.proof is not None and facts.proof.unchanged:
        found.append(f"Nothing shows that the rounds were really trained again: {facts.proof.unchanged}.")
    if request.remark:
        found.append(f"Remark in the register: {request.remark}.")
    if facts.proof is None:
        found.append(f"There is no signed proof: {facts.no_proof}.")
    return found


def _not_promised(facts: Facts) -> tuple[str, ...]:
    proof = facts.proof
    limits = limits_of(
        facts.as_view(),
        facts.policy_view(),
        drawn=None if proof is None else proof.drawn,
        exposed=proof is not None and proof.exposed,
        purge_due=None if facts.purge_due is None else _day(facts.purge_due),
        releases=_releases(facts),
    )
    if proof is not None and proof.signed_word:
        limits = [each.replace("the client's word at most", "the client's signed word alone") for each in limits]
    return tuple(limits)


def _releases(facts: Facts) -> str:
    if not facts.released:
        return "None is on record; copies that nobody recorded are not known."
    return f"On record as given to others: {facts.released}; of these to be deleted there: {facts.superseded}."


# -- not granted ---------------------------------------------------------------------------------------------------


_NO_PROOF = "There is no proof: this document says how far the request is, and proves nothing about an erasure."
_WAITING = {
    RequestState.PAUSED: "Not decided yet: the request is paused, because it is in doubt who asked.",
    RequestState.REBUILDING: "Decided, and not finished: the model is being trained again; there is no answer yet.",
    RequestState.DELETING: "Decided, and not finished: the model is in order, and the client is being deleted.",
    RequestState.WAITING: "Not decided yet: the request waits to be answered.",
}


def _closed(facts: Facts) -> Decision:
    refused = facts.request.state is RequestState.REFUSED
    sentence = "Refused: nothing was erased." if refused else "Withdrawn before it was decided: nothing was erased."
    kind = EventKind.REFUSED if refused else EventKind.CANCELLED
    event = next((each for each in reversed(facts.request.history) if each.kind is kind), None)
    reason = "" if event is None or not event.reason else f"The reason on record: “{escaped(event.reason)}”."
    meaning = (
        reason,
        "The client stays in the training. It may ask again, which is a new request.",
        _NO_PROOF,
    )
    return Decision(Outcome.CLOSED, sentence, tuple(filter(None, meaning)), ("That anything was erased.",))


def _open(facts: Facts) -> Decision:
    request = facts.request
    sentence = _WAITING[request.state]
    if request.state is RequestState.WAITING and request.approval is Approval.AWAITED:
        sentence = "Not decided yet: the request waits for somebody to approve or refuse it."
    changed = "" if request.judged else "Nothing has been changed: the client is still in the training."
    return Decision(
        Outcome.OPEN,
        sentence,
        tuple(filter(None, (changed, _clock(facts), _NO_PROOF))),
        ("That anything was erased.", "That the request will be granted.")
        if not request.judged
        else ("That the erasure is complete.",),
    )


def _clock(facts: Facts) -> str:
    request, due = facts.request, _day(facts.request.due)
    if request.paused:
        return f"The deadline stands still during the pause; were it to end now, it would be {due}."
    late = ", which has passed" if request.overdue(facts.made_at) else ""
    return f"It has to be answered by {due}{late}."


def _day(moment: datetime) -> str:
    return day(moment.isoformat())
