"""``python -m sglang_ascend.quantize MODEL OUT``: a checkpoint with INT8 weights."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from sglang_ascend.errors import ConfigError
from sglang_ascend.models import catalog

_DESCRIPTION = """\
Write a float checkpoint with INT8 weights (one scale for each output channel), to be served with
INT8 activations: embedding, head, router, norms and MLA's kv_b_proj stay in float. Interrupted, the
same command goes on where it stopped; the folder cannot be loaded before it is whole.
"""
_EXAMPLES = """\
examples:
  python -m sglang_ascend.quantize tiny-deepseek-v3 /models/tiny-int8
  python -m sglang_ascend.launch_server --model-path /models/tiny-int8
      serve it; --quantization ascend_w8a8 is found out from the checkpoint
  python -m sglang_ascend.quantize smollm2-135m-instruct /models/smol-int8 --smooth page.txt
  python -m sglang_ascend.quantize /models/DeepSeek-V3-bf16 /models/V3-int8 --format modelslim
"""


def _parser() -> argparse.ArgumentParser:
    from sglang_ascend.quantization.formats import FORMATS
    from sglang_ascend.quantization.smoothing import ALPHA

    parser = argparse.ArgumentParser(
        prog="python -m sglang_ascend.quantize",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help="an embedded model or the folder of a float checkpoint")
    parser.add_argument("out", type=Path, help="a new folder, or one that was interrupted")
    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help="default: %(default)s"
    )
    parser.add_argument(
        "--calibrate",
        type=Path,
        metavar="TEXT",
        help="run this text through the model and report the error of every layer's output; takes "
        "the memory of the model in float32, and leaves routed experts out",
    )
    parser.add_argument(
        "--smooth",
        type=Path,
        metavar="TEXT",
        help="move outliers of activations, as this text makes them, into the weights "
        "(SmoothQuant); for dense Llama-like models; takes the memory of the model in float32",
    )
    parser.add_argument(
        "--alpha",
        type=float,
        metavar="SHARE",
        help=f"with --smooth: how much of an outlier moves, 0..1; default: {ALPHA}",
    )
    parser.add_argument(
        "--restart", action="store_true", help="replace what an earlier run left in OUT"
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """Return 0, or 2 with one line on stderr for what cannot be done."""
    options = _parser().parse_args(argv)
    try:
        _run(options)
    except ConfigError as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    from tqdm import tqdm

    from sglang_ascend.quantization import layer_error, writer

    source = writer.Source(catalog.resolve(options.model))
    output_errors = smooth = None
    if options.alpha is not None and not options.smooth:
        raise ConfigError("--alpha needs --smooth TEXT; give a text or leave --alpha out")
    if options.calibrate or options.smooth:
        from sglang_ascend.plugin import torchvision_ops

        torchvision_ops.declare_if_missing()  # transformers imports torchvision
    if options.smooth:
        from sglang_ascend.quantization import smoothing

        alpha = smoothing.ALPHA if options.alpha is None else options.alpha
        tensors = itertools.chain.from_iterable(source.shards.values())
        smooth = smoothing.calibrate(source.folder, source.config, tensors, options.smooth, alpha)
    if options.calibrate:
        from sglang_ascend.quantization import output_error

        factors = smooth.factors if smooth else None
        output_errors = output_error.measure(source.folder, options.calibrate, factors)
    with tqdm(total=source.elements, unit="", unit_scale=True, desc="quantising") as bar:
        layers = writer.write(
            source, options.out, options.format, options.restart, bar.update, output_errors, smooth
        )
    print("\n".join(layer_error.table(layers)))
    print(f"{len(layers)} layers in INT8; {options.out / layer_error.REPORT} lists all of them")


if __name__ == "__main__":
    sys.exit(main())
