"""SGLang without this package: its own torch attention on a bare platform class."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

from benchmark.partners import dialects
from benchmark.partners.contender import Contender, Job, Launch

_ROOT = Path(__file__).resolve().parents[2]
#: Name of the entry point.
_PLATFORM = "bare"


class StockSglang(Contender):
    name = "stock-sglang-float32"
    family = "stock-sglang"
    number_format = "float32"
    dialect = dialects.SGLANG

    def version(self) -> str:
        return importlib.metadata.version("sglang")

    def launch(self, job: Job) -> Launch:
        path = [str(_distribution(job.scratch)), str(_ROOT), os.environ.get("PYTHONPATH", "")]
        command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(job.folder)]
        command += ["--port", str(job.port), "--attention-backend", "torch_native"]
        command += ["--sampling-backend", "pytorch", "--dtype", "float32", "--page-size", "1"]
        # Left alone, it takes nearly all memory of the machine; as many tokens as ours has.
        command += ["--max-total-tokens", str(2 * job.cache_tokens), "--disable-cuda-graph"]
        command += ["--disable-overlap-schedule", "--disable-custom-all-reduce"]
        env = {
            "SGLANG_PLATFORM": _PLATFORM,
            "SGLANG_PLUGINS": _PLATFORM,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }
        return Launch(command, env)


def _distribution(folder: Path) -> Path:
    """A folder for the path with a distribution that has nothing but the platform's entry."""
    info = folder / "bare_platform-1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bare-platform\nVersion: 1\n")
    entry = f"{_PLATFORM} = benchmark.partners.bare_platform:activate"
    (info / "entry_points.txt").write_text(f"[sglang.srt.platforms]\n{entry}\n")
    return folder
