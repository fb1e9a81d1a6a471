from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from disavow.engines.fused import nvrtc
from tests.engines.fused.emulator import COMPILER, Emulator


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[torch.device]:
    """The GPU where there is one; else the kernels are emulated."""
    if torch.cuda.is_available():
        yield torch.device("cuda")
        return
    if COMPILER is None:
        pytest.skip("there is neither a GPU nor a compiler here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "compile_kernel", Emulator(tmp_path_factory.mktemp("emulated")))
        yield torch.device("cpu")
