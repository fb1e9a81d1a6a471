"""FedEraser against retraining at the moment a request is answered, from the runs in `results/`.

After the last round FedEraser has caught up, because the rounds that it lacks are trained on top; whoever asked got
the answer before that. Its work counts those rounds, too. The last column: what our method, sticky clusters, takes
on disk after the same requests, as a share of FedEraser, which keeps the updates of every second round, compressed.

python -m benchmarks.at_the_answer    a Markdown table
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

RESULTS = Path("results")
Line = dict[str, Any]


def answers(line: Line) -> list[float]:
    """The accuracy of the model that is served right after each request."""
    found, position, standing = [], 0, 0
    for request in line["requests"]:
        while standing < request["after_round"]:
            standing = line["rounds"][position]["number"]
            position += 1
        position += request["rounds"]
        standing = line["rounds"][position - 1]["number"]
        found.append(line["rounds"][position - 1]["accuracy"])
    return found


def spent(line: Line) -> float:
    """Client-epochs spent on requests by a run that retrains at each."""
    return float(sum(request["client_epochs"] for request in line["requests"]))


def main() -> None:
    """Compare every FedEraser run with the FedAvg run of the same requests."""
    print("| network, row | seeds | points below retraining: all requests | the last | work | disk of ours |")
    print("|---|---|---|---|---|---|")
    for path in sorted(RESULTS.glob("*-iid.jsonl")) + sorted(RESULTS.glob("*-noniid.jsonl")):
        lines = [json.loads(text) for text in path.read_text().splitlines()]
        if not all("requests" in line for line in lines):
            continue
        whole = [line for line in lines if not line["quick"]]
        runs = {(line["method"], line["seed"]): line for line in whole}
        pairs = [
            (line, runs["fedavg", seed])
            for (method, seed), line in sorted(runs.items())
            if method == "federaser" and spent(runs.get(("fedavg", seed), {"requests": []}))
        ]
        if not pairs:
            continue
        gaps = [
            [100 * (due - got) for got, due in zip(answers(ours), answers(again), strict=True)]
            for ours, again in pairs
        ]
        work = [1 + (ours["client_epochs"] - again["client_epochs"]) / spent(again) for ours, again in pairs]
        mean, last = fmean(fmean(each) for each in gaps), fmean(each[-1] for each in gaps)
        ours = [line["bytes"]["total"] for line in whole if line["method"] == "sticky"]
        disk = fmean(line["bytes"]["total"] for line, _ in pairs) / fmean(ours) if ours else None
        times = "" if disk is None else f"1/{disk:.1f}"
        print(f"| {path.stem} | {len(pairs)} | {mean:.1f} | {last:.1f} | {fmean(work):.2f} | {times} |")


if __name__ == "__main__":
    main()
