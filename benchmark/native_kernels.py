"""Products of the reference device's native kernels beside those of torch, on this machine.

    python -m benchmark.native_kernels [--out benchmark/results/native_kernels.json]

Float: `native.matmul.linear`, which takes few rows, beside `torch.nn.functional.linear` (MKL) and
oneDNN, which takes many (`plugin/float_linear.py`). INT8: `native.int8.matmul`
beside FBGEMM's packed dynamic linear, which may saturate on a CPU without VNNI and quantises its
input itself, so its time holds that as well. Shapes are those of SmolLM2-135M's layers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from sglang_ascend.plugin import host_settings

host_settings.publish()  # as in a server, and before torch loads its OpenMP

import torch  # noqa: E402
from tqdm import tqdm  # noqa: E402

from benchmark import serving_machine  # noqa: E402
from sglang_ascend.native import int8, matmul  # noqa: E402
from sglang_ascend.plugin import float_linear  # noqa: E402

SHAPES = ((576, 960), (576, 576), (576, 3072), (1536, 576), (576, 49152))
ROWS = (1, 4, 16, 32, 48, 64, 128, 512)
REPEATS = 30


def seconds(run: Callable[[], object]) -> float:
    """Median time of one call, after two that do not count."""
    times = []
    for _ in range(REPEATS + 2):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def fbgemm(weight: torch.Tensor):
    """FBGEMM's packed form of an int8 weight [in, out]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scale, zero = torch.ones(weight.shape[1]), torch.zeros(weight.shape[1], dtype=torch.long)
        quantised = torch.quantize_per_channel(weight.t().float(), scale, zero, 0, torch.qint8)
        torch.backends.quantized.engine = "fbgemm"
        return torch.ops.quantized.linear_prepack(quantised, None)


def measure(width: int, outs: int, rows: int) -> dict[str, float | int]:
    """Rates of one product in 10^9 operations a second, two for each multiplication."""
    x, weight = torch.randn(rows, width), torch.randn(outs, width)
    x8 = torch.randint(-127, 128, (rows, width), dtype=torch.int8)
    weight8 = torch.randint(-127, 128, (width, outs), dtype=torch.int8)
    packed = fbgemm(weight8)
    int8.pack(weight8)
    ones = torch.ones(max(rows, outs))
    runs = {
        "float_native": lambda: matmul.linear(x, weight),
        "float_torch": lambda: torch.nn.functional.linear(x, weight),
        "float_onednn": lambda: float_linear.many_rows(x, weight),
        "int8_native": lambda: int8.matmul(x8, ones[:rows], weight8, ones[:outs], torch.float32),
        "int8_fbgemm": lambda: torch.ops.quantized.linear_dynamic(x, packed, reduce_range=False),
    }
    rates = {
        name: round(2e-9 * rows * width * outs / seconds(run), 1) for name, run in runs.items()
    }
    return {"in": width, "out": outs, "rows": rows, **rates}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("benchmark/results/native_kernels.json"))
    options = parser.parse_args()
    host_settings.settle()
    cases = [(*shape, rows) for shape in SHAPES for rows in ROWS]
    results = [measure(*case) for case in tqdm(cases, unit="product")]
    print(
        f"{'in':>5} {'out':>6} {'rows':>5}   float: native  torch oneDNN    INT8: native  FBGEMM"
        "  (GOP/s)"
    )
    for row in results:
        print(
            f"{row['in']:5} {row['out']:6} {row['rows']:5} {row['float_native']:15} "
            f"{row['float_torch']:6} {row['float_onednn']:6} {row['int8_native']:15} "
            f"{row['int8_fbgemm']:7}"
        )
    content = {
        "machine": serving_machine.describe(),
        "threads": torch.get_num_threads(),
        "products": results,
    }
    options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
