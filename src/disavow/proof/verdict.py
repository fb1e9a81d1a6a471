"""The verdict of a proof: that it is the one in the log, and follows from the rounds that are shown."""

from __future__ import annotations

from disavow.errors import VerificationError
from disavow.proof.history import History
from disavow.proof.leaves import Leaf, commit_rounds
from disavow.proof.reading import day_of
from disavow.proof.report import unchanged_in_words
from disavow.proof.statement import TIMES, Statement


def check_verdict(statement: Statement, history: History) -> str:
    """The verdict in words, if it holds."""
    said = statement.predicate
    return _check_what_if(said) if statement.what_if else _check_erasure(said, history)


def _check_what_if(said: Leaf) -> str:
    """Nobody asked, so it points to nothing in the log; the clusters alone decide."""
    kind, first = said["verdict"]["kind"], said["verdict"]["from"]
    if any(said[name] is not None for name in ("withdrawal", "request", "rounds", "times")) or first is not None:
        raise VerificationError("a what-if has no withdrawal")
    if kind == "rollback" or (kind == "never present") != (not said["clusters"]):
        raise VerificationError(f"{kind} is not what the clusters say")
    return f"{kind}, if it were asked"


def _check_erasure(said: Leaf, history: History) -> str:
    """The verdict is the one that its withdrawal logged, and every round undone was retrained after it."""
    kind, first = said["verdict"]["kind"], said["verdict"]["from"]
    place, chosen = said["withdrawal"], said["request"]
    if place not in history.withdrawals or None in (chosen, said["rounds"], said["times"]):
        raise VerificationError("the proof does not point to a withdrawal")
    requests = history.leaves[place]["requests"]
    if chosen >= len(requests):
        raise VerificationError("the proof does not point to a request of its withdrawal")
    request = requests[chosen]
    if request["verdict"] != kind or (first is not None) != (kind == "rollback"):
        raise VerificationError(f"the verdict in the log is {request['verdict']}")
    if kind == "rollback" and first != history.rollback_after(place):
        raise VerificationError("the rollback in the log is to another round")
    _check_times(said["times"], asked=request["asked_at"], judged=history.leaves[place]["at"])
    _check_rounds(said, history, request["rounds"])
    for number, standing in enumerate(history.standing, start=1):
        if first is not None and number >= first and standing < place:
            raise VerificationError(f"round {number} was not retrained after the withdrawal")
    if (kind == "never present") != (not said["clusters"] and not said["rounds"]["superseded"]):
        raise VerificationError(f"{kind} is not what the rounds say")
    asked, judged, answered = (said["times"][name] for name in TIMES)
    back = f" from round {first}" if first else ""
    return f"{kind}{back}, asked {asked}, judged {judged}, answered {answered}"


def unchanged(statement: Statement, history: History) -> str:
    """What must be said of a rollback whose models are those that it undid; "" where there is nothing to say."""
    said = statement.predicate
    if statement.what_if or said["verdict"]["kind"] != "rollback":
        return ""
    same = history.unchanged(said["withdrawal"])
    return unchanged_in_words(len(same), served=same[-1] == history.standing[-1]) if same else ""


def _check_times(times: dict[str, str], *, asked: str, judged: str) -> None:
    """The times of the request come in their order, and on the days that the log has."""
    if not times["asked_at"] <= times["judged_at"] <= times["answered_at"]:
        raise VerificationError("the request was judged before it was asked, or answered before it was judged")
    if (day_of(times["asked_at"]), day_of(times["judged_at"])) != (asked, judged):
        raise VerificationError(
            f"the request was asked or judged on other days than the log has: {asked}, {judged}"
        )


def _check_rounds(said: Leaf, history: History, commitment: bytes) -> None:
    """The rounds shown are those that the withdrawal committed to, all of them."""
    superseded = said["rounds"]["superseded"]
    shown = [cluster["leaf"] for cluster in said["clusters"]]
    everywhere, gone = set(history.rounds), set(history.rounds) - set(history.standing)
    if superseded != sorted(set(superseded)) or not set(superseded) <= gone:
        raise VerificationError("rounds are called superseded that are not")
    leaves = sorted([*shown, *superseded])
    if any(leaf not in everywhere or leaf > said["withdrawal"] for leaf in leaves):
        raise VerificationError("the leaver is shown in a round after its withdrawal")
    if commit_rounds(said["rounds"]["salt"], leaves) != commitment:
        raise VerificationError("the rounds shown are not those that the withdrawal committed to")
