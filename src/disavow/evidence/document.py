"""The document of an evidence pack: one HTML page in plain language, for screen and paper, without network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from disavow import wording
from disavow.domain import Approval, Cost, Deadline, EventKind, RequestEvent, RequestState, escaped
from disavow.evidence.decision import Decision, decision_of
from disavow.evidence.elements import bullets, definitions, element, figure, row, section, table
from disavow.evidence.facts import CheckedProof, Facts
from disavow.proof.limitations import not_claimed
from disavow.proof.validation import to_base64
from disavow.verifier.assemble import hash_source

STYLE = "style.css"
_GROUP = 4
"""Digits of a fingerprint that are read out together."""

_ABOUT_CLIENT = (
    "“The client” is who asked: a person, a device or an organisation whose data was used to train a computer "
    "model together with others."
)
_ABOUT_TRAINING = (
    "A model is trained in rounds. In each round the clients train it on their own data, which stays with them, "
    "and send back what they would change: a contribution.",
    "Contributions that are alike are put into groups of at least {k}. From each group {s} drawn by lot, in "
    "secret. What was drawn goes into the model, with some random noise; the rest of the group does not.",
    "So when a client leaves, others of its group can often stand in for it: what is in the model may as well be "
    "theirs. Such an answer is called deniable. Where too few others are left, the rounds are undone and trained "
    "again without the client.",
    "Every round and every departure is written into a log that can only grow. A proof is a signed extract of it.",
)

_EVENTS = {
    EventKind.RECEIVED: "The clock starts.",
    EventKind.PAUSED: "The clock stands still.",
    EventKind.RESUMED: "The clock runs again, later by as long as the pause was.",
}
"""What an event does to the deadline."""

_DECISIONS = {
    EventKind.APPROVED: "Approved",
    EventKind.REFUSED: "Refused",
    EventKind.CANCELLED: "Taken back",
}


@dataclass(frozen=True)
class PackedFile:
    """A file beside the document.

    Args:
        name: What it is called.
        about: What it is, in a few words.
        digest: Its SHA-256, in hexadecimal.

    """

    name: str
    about: str
    digest: str


def render(facts: Facts, packed: Sequence[PackedFile], *, opening: bool) -> bytes:
    """Write the document.

    Args:
        facts: What is known about the request.
        packed: The files beside it.
        opening: Whether the client's opening is among them.

    Returns:
        An HTML page. Its policy allows no network, no script, and no style but the one in it.

    """
    style = f"\n{(files(__package__) / STYLE).read_text(encoding='utf-8')}"
    policy = f"default-src 'none'; style-src {hash_source(style)}; base-uri 'none'; form-action 'none'"
    decision, number = decision_of(facts), facts.request.number
    page = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", **{"http-equiv": "Content-Security-Policy", "content": policy}),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="referrer", content="no-referrer"),
            element("title", f"Request {number} of run {facts.run}: what was decided"),
            element("style", style),
        ),
        element(
            "body",
            element(
                "main",
                element("h1", "A request to be forgotten: what was decided"),
                element("p", f"Request {number} of the training run “{facts.run}”", class_="aside under"),
                element("p", _ABOUT_CLIENT, class_="about"),
                _opening_warning() if opening else None,
                _decision(facts, decision),
                _training(facts),
                _timeline(facts),
                _deciders(facts),
                _cost(facts),
                _verifying(facts, {each.name for each in packed}),
                _digests(facts),
                _files(packed),
                _annex(facts),
                _footer(facts),
            ),
        ),
        lang="en",
    )
    text: str = ElementTree.tostring(page, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{text}\n".encode()


# -- sections ------------------------------------------------------------------------------------------------------


def _decision(facts: Facts, decision: Decision) -> Element:
    """What somebody reads first, and what many read alone."""
    return element(
        "section",
        element("p", "The decision", class_="kicker"),
        element("p", decision.sentence, class_="decision"),
        definitions(_dates(facts)),
        element("h2", "What this means"),
        bullets(decision.meaning),
        element(
            "div",
            element("h2", "What was NOT promised"),
            element("ul", *map(_limit, decision.not_promised)),
            class_="not",
        ),
        class_=f"lead {decision.outcome.value}",
    )


def _limit(text: str) -> Element:
    """A limit, its first sentence set off from what explains it."""
    first, dot, rest = text.partition(". ")
    return element("li", element("strong", f"{first}{dot and '.'}"), f" {rest}" if rest else None)


def _dates(facts: Facts) -> list[tuple[str, str]]:
    request = facts.request
    found = [("Received", _day(request.asked_at.isoformat()))]
    if request.answered_at is not None:
        kept = "met" if request.in_time else "missed"
        found += [("Answered", _day(request.answered_at.isoformat())), ("Deadline", f"{_due(facts)}: {kept}")]
    elif request.refused_at is not None:
        found.append(("Refused", _day(request.refused_at.isoformat())))
    elif request.cancelled_at is not None:
        found.append(("Withdrawn", _day(request.cancelled_at.isoformat())))
    else:
        found += [("State on", _day(facts.made_at.isoformat())), ("To be answered by", _due(facts))]
    if facts.trained_out_at is not None:
        found.append(("Trained out of the model", _day(facts.trained_out_at.isoformat())))
    elif facts.purge_due is not None:
        found.append(("To be trained out by", _day(facts.purge_due.isoformat())))
    return found


def _training(facts: Facts) -> Element:
    drawn = "one member is" if facts.policy.representatives == 1 else f"{facts.policy.representatives} members are"
    return section(
        "How this kind of training works",
        *(element("p", text.format(k=facts.policy.k, s=drawn)) for text in _ABOUT_TRAINING),
    )


def _timeline(facts: Facts) -> Element:
    """What happened, with the deadline as it was after each event."""
    request = facts.request
    rows = [
        row(
            wording.moment(event.at.isoformat()).removesuffix(" UTC"),
            element("td", *_happened(event)),
            _day(Deadline.after(request.asked_at, request.history[: place + 1]).due.isoformat())
            if _moves_deadline(event)
            else "",
            _by(event),
        )
        for place, event in enumerate(request.history)
    ]
    if request.pending:
        rows.append(row(_due(facts), "To be answered by then", "", "", future=True))
    if facts.purge_due is not None:
        rows.append(
            row(_day(facts.purge_due.isoformat()), "To be trained out of the model by then", "", "", future=True)
        )
    return section(
        "What happened when",
        table(["When (UTC)", "What", "Deadline", "By whom"], rows, class_="dated"),
        element(
            "p",
            "By law an answer is due one month after the request is received (GDPR Art. 12(3)); it can be extended "
            "once, by two further months, with a reason. "
            + ("" if facts.named else "Names and reasons are left out of this copy."),
            class_="aside under",
        ),
    )


def _happened(event: RequestEvent) -> list[Element | str]:
    found: list[Element | str] = [wording.EVENTS[event.kind.value]]
    if event.kind in _EVENTS:
        found.append(f". {_EVENTS[event.kind]}")
    if event.reason:
        found += [element("br"), "Reason: ", element("q", escaped(event.reason))]
    return found


def _by(event: RequestEvent) -> str:
    if event.actor is None:
        return "sealed: the keyring is not here"
    return escaped(event.actor)


def _moves_deadline(event: RequestEvent) -> bool:
    return event.kind in (EventKind.RECEIVED, EventKind.RESUMED, EventKind.EXTENDED)


def _deciders(facts: Facts) -> Element:
    """Who approved the request, refused it or took it back."""
    decisions = [event for event in facts.request.history if event.kind in _DECISIONS]
    paragraphs = [_decided(event) for event in decisions]
    if facts.request.approval is Approval.AWAITED:
        paragraphs = [element("p", "Nobody has approved it yet, and somebody has to.")]
    elif not decisions:
        automatic = "The software decided it by its rules, and the settings of this run ask nobody to approve that."
        paragraphs = [element("p", automatic)]
    return section("Who decided", *paragraphs)


def _decided(event: RequestEvent) -> Element:
    seen = [] if event.forecast is None else [element("code", event.forecast[:16])]
    return element(
        "p",
        f"{_DECISIONS[event.kind]} on {wording.moment(event.at.isoformat())}",
        f" by {escaped(event.actor)}" if event.actor else "",
        ", having seen the forecast " if seen else "",
        *seen,
        ".",
    )


def _cost(facts: Facts) -> Element:
    """What answering took, or would take."""
    costs: list[tuple[str, Cost]] = []
    if facts.request.cost is not None and facts.request.judged:
        costs.append(("Answering", facts.request.cost))
    if facts.purge_cost is not None:
        costs.append(("Training out of the model, all leavers together", facts.purge_cost))
    if facts.forecast is not None:
        costs.append((f"Forecast, if it were answered now: {facts.forecast.verdict}", facts.forecast.cost))
    if not costs or (len(costs) == 1 and not costs[0][1].rounds and facts.forecast is None):
        nothing = "No training had to be done for it." if facts.request.judged else "Nothing was done for it."
        if facts.no_forecast:
            nothing += f" What answering it would cost cannot be foreseen here ({facts.no_forecast})."
        return section("What it cost", element("p", nothing))
    rows = [
        row(
            what,
            figure(f"{cost.rounds:,}"),
            figure(f"{cost.client_epochs:,}"),
            figure(wording.size(cost.exchanged_bytes)),
            figure(wording.duration(cost.seconds)),
        )
        for what, cost in costs
    ]
    headings = ["For what", "Rounds", "Client-epochs", "Data exchanged", "Time"]
    return section(
        "What it cost",
        table(headings, rows, figures=4),
        element(
            "p",
            "A client-epoch is one pass of one client over all of its data.",
            class_="aside under",
        ),
    )


def _verifying(facts: Facts, names: set[str]) -> Element:
    """Three ways to check what this document says; or what can be checked without a proof."""
    if facts.proof is None or facts.keys is None:
        return section("How to check this", element("p", f"There is no proof to check: {facts.no_proof}."))
    key = facts.keys[0]
    command = ["disavow verify proof.json", f"--key {key}"]
    command += ["--checkpoint checkpoint.txt"] if facts.checkpoint_fits else []
    command += ["--serving serving.json"] if "serving.json" in names else []
    command += ["--opening opening.json"] if "opening.json" in names else []
    return section(
        "How to check this yourself",
        element("p", "Do not take this document's word for it: what it says of the verdict is in the proof."),
        element("h3", "1. Compare the key, by another channel"),
        element(
            "p",
            "Whoever can forge a proof can also put a matching key beside it. Ask the operator for the fingerprint "
            "of its key by telephone, by letter or from its web site, not the way this folder came. It must be:",
        ),
        element("pre", _grouped(facts.proof.signer.id)),
        element("h3", "2. In a browser"),
        element(
            "p",
            "Open ",
            element("code", "verify.html"),
            ", and drop in ",
            element("code", "proof.json"),
            " and ",
            element("code", key),
            ". It works offline and sends nothing anywhere. Better still, take the page from elsewhere than this "
            "folder: “disavow verifier -o verify.html” writes it.",
        ),
        element("h3", "3. With the program"),
        element("pre", " \\\n    ".join(command)),
        element(
            "p",
            "Each of the checks is numbered and named, and the same in both. “Valid, but it names nobody” is what "
            "a proof without its opening comes to: whom it is about is said by the client's own file alone. ",
            "Keep ",
            element("code", "checkpoint.txt"),
            " as well: with it anybody can show later that the log was rewritten."
            if facts.checkpoint is not None
            else "",
        ),
    )


def _digests(facts: Facts) -> Element:
    proof = facts.proof
    rows = [
        ("Run", facts.run_id, "which training this is about"),
        ("Model in use", facts.model, "SHA-256 of the file that the run serves"),
    ]
    if proof is not None:
        rows += [
            ("Model of the proof", proof.statement.model, "the model that the proof speaks of"),
            (
                "Head of the log",
                f"{proof.head.size} entries, {to_base64(proof.head.root)}",
                "how much the proof covers",
            ),
        ]
    if facts.key is not None:
        rows.append(("Key", f"{facts.key.id} ({facts.key.name})", "whose signature it bears"))
    return section(
        "Digests",
        table(
            ["What", "Value", "Meaning"],
            [row(what, _digest(value), about) for what, value, about in rows],
        ),
        class_="whole",
    )


def _files(packed: Iterable[PackedFile]) -> Element:
    return section(
        "Files beside this document",
        table(
            ["File", "What it is", "SHA-256"],
            [row(each.name, each.about, _digest(each.digest)) for each in packed],
        ),
        element(
            "p",
            "An evidence.pdf, if there is one, is this document for paper. SHA256SUMS has all digests; “sha256sum "
            "--check SHA256SUMS” compares them.",
            class_="aside under",
        ),
    )


def _annex(facts: Facts) -> Element | None:
    """The exact words of the proof, and what became of its checks when the pack was made."""
    proof = facts.proof
    if proof is None:
        return None
    return section(
        "Annex: the proof in its own words",
        element("p", f"{_passed(proof)} when this pack was made, on {wording.moment(facts.made_at.isoformat())}."),
        table(
            ["Check", "Result", "What it found"],
            [
                row(f"{each.number} {each.name}", "passed" if each.passed else "–", each.detail)
                for each in proof.report.results
            ],
        ),
        element("h3", "What the proof does not claim"),
        bullets(not_claimed(proof.report)),
        class_="annex",
    )


def _passed(proof: CheckedProof) -> str:
    results = proof.report.results
    passed = sum(each.passed is True for each in results)
    return f"Of {len(results)} checks {passed} passed, and {len(results) - passed} had nothing to check,"


def _opening_warning() -> Element:
    return element(
        "p",
        element("strong", "This folder says who the client is. "),
        "It contains opening.json, which names the client and ties the proof to it. It is the client's own: give "
        "it to nobody else, and delete it once the client has it.",
        class_="warning",
    )


def _footer(facts: Facts) -> Element:
    return element(
        "footer",
        element(
            "p",
            f"Made on {wording.moment(facts.made_at.isoformat())} by disavow {facts.made_by}. It describes what "
            "software recorded, and is no legal advice.",
            class_="aside",
        ),
    )


def _digest(value: str) -> Element:
    return element("td", element("code", value, class_="digest"))


def _day(moment: str) -> str:
    return wording.day(moment)


def _due(facts: Facts) -> str:
    request = facts.request
    extended = ", extended" if request.extended_until is not None else ""
    still = ", standing still" if request.state is RequestState.PAUSED else ""
    return f"{_day(request.due.isoformat())}{extended}{still}"


def _grouped(fingerprint: str) -> str:
    """Write digits in groups that can be read out.

    >>> _grouped("3f9a1c07")
    '3f9a 1c07'

    """
    return " ".join(fingerprint[at : at + _GROUP] for at in range(0, len(fingerprint), _GROUP))
