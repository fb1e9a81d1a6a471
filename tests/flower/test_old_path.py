"""`disavow.engines.flower`, where the strategy was before, warns once and gives the same names."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("flwr")
pytestmark = pytest.mark.flower

SCRIPT = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from disavow.engines.flower import KIPFedAvg
    from disavow.engines.flower.client import evidence_mod
    import disavow.engines.flower
import disavow.flower, disavow.flower.client
assert KIPFedAvg is disavow.flower.KIPFedAvg
assert evidence_mod is disavow.flower.client.evidence_mod
print([w.category.__name__ for w in caught if "disavow" in str(w.message)])
"""


def test_it_warns_once_and_gives_the_same_names() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['FutureWarning']"
