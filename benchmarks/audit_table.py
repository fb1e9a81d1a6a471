"""Write the table of an audited purge, from what `disavow audit RUN --client ID --purge --json` printed.

python -m benchmarks.audit_table docs/results/audit-purge.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_STAGES = ("before", "answered", "served", "retrained")
_DIFFERENCES = ("answered_minus_retrained", "served_minus_retrained")


def table(report: dict[str, Any]) -> Iterator[str]:
    """Write one line for each attacker: its AUC at each stage, and both differences with their intervals.

    Args:
        report: The JSON of the audit.

    """
    headings = ["attacker", *_STAGES, *(name.replace("_", " ") for name in _DIFFERENCES)]
    yield f"| {' | '.join(headings)} |"
    yield "|---" * len(headings) + "|"
    for found in report["attackers"]:
        cells = [f"{found['attacker']}, {found['unit']}s"]
        cells += [f"{found['stages'][stage]['auc']['estimate']:.2f}" for stage in _STAGES]
        cells += [_difference(found[name]) for name in _DIFFERENCES]
        yield f"| {' | '.join(cells)} |"


def _difference(difference: dict[str, Any]) -> str:
    interval = difference["interval"]
    shown = f"{difference['estimate']:+.3f} [{interval['low']:+.3f}, {interval['high']:+.3f}]"
    return shown if difference["contains_zero"] else f"**{shown}**"


if __name__ == "__main__":
    for line in table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))):
        print(line)
