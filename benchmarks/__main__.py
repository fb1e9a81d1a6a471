"""Run benchmarks, each in a process of its own, print what they measured, and keep it as JSON.

python -m benchmarks             all of them
python -m benchmarks clustering  only that one
python -m benchmarks engines     our engines beside their peers; has options of its own, see --help after it
python -m benchmarks scale       whole erasures on ledgers of up to 10^6 clients; has options of its own too
python -m benchmarks proof_growth  proofs after 10,000 rounds and 1,000 withdrawals; only on request, half an hour
python -m benchmarks server      the service on loopback, and pages of a large run; only on request, some minutes
python -m benchmarks witness     rounds whose heads three witnesses cosign; only on request, a minute
python -m benchmarks adapters    memory of stacked adapters; only on request, because it needs the extra llm
python -m benchmarks flower      over Flower's FedAvg; only on request, because it needs the extra flower
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from disavow import __version__
from disavow.cli import run
from disavow.cli.options import needs_requirements
from disavow.proof.keys import child_environment

NAMES = ("kernels", "clustering", "weights", "recording", "judging", "proofs", "retention", "tasks", "commands")
ON_REQUEST = ("adapters", "flower", "proof_growth", "server", "witness")
ENGINES, SCALE = "engines", "scale"
RESULTS = Path("bench-results")


def main(names: list[str]) -> None:
    """Run the benchmarks of these names."""
    if {"-h", "--help"} & set(names):
        print(__doc__, end="")
        print(f"\nThere are {', '.join(NAMES)}; on request {', '.join(ON_REQUEST)}, {SCALE}, {ENGINES}.")
        return
    unknown = sorted(set(names) - set(NAMES) - set(ON_REQUEST))
    if unknown:
        there = ", ".join((*NAMES, *ON_REQUEST, SCALE, ENGINES))
        sys.exit(f"no benchmark is called {', '.join(unknown)}; there are {there}")
    results: list[dict[str, object]] = []
    for name in names or NAMES:
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}"],
            env=child_environment(),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        for line in done.stdout.splitlines():
            results.append({"benchmark": name, **json.loads(line)})
            print("  ".join(f"{key} {_shown(value)}" for key, value in results[-1].items()), flush=True)
    import torch

    machine = {
        "disavow": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps({"machine": machine, "results": results}, indent=2))
    print(f"kept in {path}")


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def engines() -> None:
    """Run the comparison of engines, which has options of its own."""
    with needs_requirements("benchmarks/requirements.txt"):
        from benchmarks.engines.cli import app
    app(sys.argv[2:], prog_name=f"python -m benchmarks {ENGINES}")


if sys.argv[1:2] == [ENGINES]:
    run(engines)
elif sys.argv[1:2] == [SCALE]:
    from benchmarks.scale import main as scale

    scale(sys.argv[2:])
else:
    main(sys.argv[1:])
