"""`disavow show-proof`: a proof in words. Nothing that trains is imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from disavow.cli.files import read_bytes
from disavow.cli.output import Console, print_json, results
from disavow.errors import VerificationError
from disavow.proof.bounds import NO_PROTECTION
from disavow.proof.envelope import Envelope
from disavow.proof.history import History
from disavow.proof.keys import trusted_keys
from disavow.proof.leaves import KeyLeaf, RebuiltLeaf, RoundLeaf, RunLeaf
from disavow.proof.limitations import not_claimed
from disavow.proof.statement import AnyCluster, AnyStatement, decode_statement
from disavow.proof.summary import (
    delta_in_words,
    erased_records,
    purged_in_words,
    rebuilt_in_words,
    records_in_words,
    summarise,
    summary_in_words,
    unchanged_in_words,
)
from disavow.proof.verify import Report, TrustedKey, VerificationInputs, examine

_HEADER = "round  slots  withdrawn  survivors  spread/update  pairs within Δ  displacement  log10 of the odds"
_PROMISED = (
    *("k", "x", "representatives", "delta", "relative_delta", "odds"),
    *("noise", "statistics", "draws", "mechanism"),
)


def show(proof: Path, *, key: Path | None, as_json: bool) -> None:
    """Render a proof for a person."""
    data = read_bytes(proof)
    statement = decode_statement(Envelope.decode(data).statement)
    trusted = trusted_keys(key) if key else _own_key(statement)
    report = examine(VerificationInputs(proof=data, trusted=trusted, what_if=statement.what_if))
    if report.history is None or report.failure is not None:
        raise VerificationError(f"the proof does not hold: {report.failure}")
    document = _document(statement, report, trusted=key is not None)
    if as_json:
        print_json(document)
        return
    _print_proof(results(), document, report)


def _own_key(statement: AnyStatement) -> list[TrustedKey]:
    keys = [leaf.key for leaf in statement.predicate.leaves if isinstance(leaf, RunLeaf | KeyLeaf)]
    if not keys or keys[-1] is None:
        raise VerificationError("the log names no key, because it was signed late: give the server's --key")
    return [TrustedKey(keys[-1])]


def _document(statement: AnyStatement, report: Report, *, trusted: bool) -> dict[str, Any]:
    said, history = statement.predicate, report.history
    clusters: Sequence[AnyCluster] = said.clusters
    assert history is not None  # noqa: S101
    first, withdrawal = said.verdict.start, said.withdrawal
    since = [place for place in history.standing if first and withdrawal and place > withdrawal]
    rebuilt = any(isinstance(history.rounds[place], RebuiltLeaf) for place in since)
    same = unchanged_in_words(statement, history)
    times = dict.fromkeys(("asked_at", "judged_at", "answered_at")) if said.times is None else said.times.to_json()
    return {
        "kind": "what-if" if statement.what_if else "erasure",
        "key_trusted": trusted,
        "run": history.promised.run,
        **times,
        "verdict": said.verdict.kind,
        "records": _records(statement),
        "rolled_back_to": first,
        "retrained_from": first if since and not rebuilt and not same else None,
        "unchanged": same or None,
        "purged": purged_in_words(statement, history) or None,
        "approximate": rebuilt,
        "rebuilt_rounds": history.rebuilt,
        "model": statement.model,
        "frozen": history.promised.frozen,
        "policy": {name: getattr(history.policy, name) for name in _PROMISED},
        "signed_late": history.promised.key is None,
        "standing_rounds": len(history.standing),
        "rounds": [
            _shown(cluster, withdrawn, survivors, history)
            for cluster, withdrawn, survivors in zip(clusters, report.withdrawn, report.survivors, strict=True)
        ],
        "displacement": said.bounds.displacement,
        "ratio": said.bounds.ratio,
        "summary": asdict(summarise(statement)),
        "not_claimed": not_claimed(report),
    }


def _records(statement: AnyStatement) -> dict[str, Any] | None:
    """How many records were to be erased, and the digest of the client's signed word; None for a whole client."""
    found = erased_records(statement.predicate)
    return None if found is None else {"count": found.count, "word": found.word.hex() if found.word else None}


def _shown(cluster: AnyCluster, withdrawn: int, survivors: int, history: History) -> dict[str, Any]:
    leaf = history.rounds[cluster.leaf]
    assert isinstance(leaf, RoundLeaf)  # noqa: S101
    return {
        "round": leaf.number,
        "slots": cluster.size,
        "withdrawn": withdrawn,
        "survivors": survivors,
        "spread": cluster.spread,
        "delta": leaf.delta,
        "update_norm": leaf.update_norm,
        "pairs_within_delta": leaf.pairs_within,
        "displacement": cluster.displacement,
        "log10_odds": cluster.log10_odds,
    }


def _print_proof(console: Console, document: dict[str, Any], report: Report) -> None:
    if not document["key_trusted"]:
        console.print(
            "Signed by the key that the log itself names; `disavow verify --key` checks it against yours.\n"
        )
    if document["kind"] == "what-if":
        console.print("What if: nothing was erased. A client that is still in could be answered like this today.\n")
    else:
        console.print(
            f"asked      {document['asked_at']}\n"
            f"judged     {document['judged_at']}\n"
            f"answered   {document['answered_at']}"
        )
    policy, rebuilt = document["policy"], rebuilt_in_words(document["rebuilt_rounds"])
    delta = "" if report.history is None else delta_in_words(report.history.policy)
    limit = "" if policy["odds"] is None else f"odds of at most {policy['odds']:g}, "
    purged = f"\npurged     {document['purged']}" if document["purged"] else ""
    frozen = (
        "" if document["frozen"] is None else f"frozen     {document['frozen']} (parameters that no file holds)\n"
    )
    about = "" if report.statement is None else records_in_words(report.statement.predicate)
    records = f"records    {about}\n" if about else ""
    console.print(
        f"verdict    {document['verdict']}{_afterwards(document)}\n"
        f"{records}"
        f"model      {document['model']}\n"
        f"{frozen}"
        f"promised   k = {policy['k']}, x = {policy['x']}, {policy['representatives']} drawn of each cluster, "
        f"{limit}"
        f"Δ {delta}, noise {policy['noise']}, draws {policy['draws']}, "
        f"mechanism {policy['mechanism']}"
        f"{'; signed late: no key bound the server when the run began' if document['signed_late'] else ''}\n"
        f"rounds     {document['standing_rounds']} stand; the client was in {len(document['rounds'])} of them"
        f"{f'; {rebuilt}' if document['rebuilt_rounds'] else ''}"
        f"{purged}"
    )
    if document["rounds"]:
        console.print(f"\n{_HEADER}", style="bold")
        for row in document["rounds"]:
            console.print(_row(row))
        console.print(
            "\nAnother representative in one of these rounds would have moved that round's model by at most "
            f"{document['displacement']}."
        )
        for line in summary_in_words(summarise(report.statement), drawn=False) if report.statement else ():
            console.print(line)
    console.print()
    for sentence in not_claimed(report):
        console.print(sentence)


def _row(row: dict[str, Any]) -> str:
    """One line under `_HEADER`."""
    width = f"{row['spread'] / row['update_norm']:.2f}" if row["update_norm"] else "-"
    return (
        f"{row['round']:5d}  {row['slots']:5d}  {row['withdrawn']:9d}  {row['survivors']:9d}  {width:>13s}  "
        f"{row['pairs_within_delta']:>14.0%}  {row['displacement']:>12s}  {_odds(row['log10_odds'])}"
    )


def _afterwards(document: dict[str, Any]) -> str:
    """What a rollback was followed by."""
    if document["retrained_from"]:
        return f", retrained from round {document['retrained_from']}"
    if document["unchanged"]:
        return f" to round {document['rolled_back_to']}; {document['unchanged']}"
    if document["approximate"]:
        return f" to round {document['rolled_back_to']}, rebuilt approximately from there (not exact retraining)"
    return (
        f" to round {document['rolled_back_to']}, nothing was retrained since" if document["rolled_back_to"] else ""
    )


def _odds(figure: str | None) -> str:
    if figure is None:
        return "no Gaussian noise"
    return "no protection by noise" if float(figure) > NO_PROTECTION else figure
