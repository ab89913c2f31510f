"""``python -m sglang_ascend.contract``: are the NPU calls right, as far as torch_npu can tell?"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from sglang_ascend.contract import check, packages
from sglang_ascend.errors import ConfigError

_DESCRIPTION = """\
Call the NPU side of every operator at the shapes that serving produces, on the real torch_npu with
stand-ins for CANN's libraries, and compare shapes, dtypes and strides of the results with the
reference's. No NPU is needed, and no value is computed.
"""
_EXAMPLES = """\
examples:
  python -m sglang_ascend.contract                       all operators, 910B and 910C
  python -m sglang_ascend.contract rms_norm --soc 910C   one of each
  python -m sglang_ascend.contract --record 30000        record the embedded models' shapes anew
exit codes: 0 the contract holds, 1 it does not, 2 the check cannot run here
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sglang_ascend.contract",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("operator", nargs="*", help="operators to check (default: all)")
    parser.add_argument(
        "--soc",
        action="append",
        metavar="|".join(check.SOCS),
        help="chip, repeatable (default: all)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results")
    parser.add_argument(
        "--packages",
        type=Path,
        default=packages.FOLDER,
        metavar="FOLDER",
        help="where torch_npu is (default: %(default)s)",
    )
    parser.add_argument(
        "--record", type=int, metavar="PORT", help="serve on PORT, record, and exit"
    )
    given = parser.parse_args(argv)
    try:
        return _record(given.record) if given.record else _check(given)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _record(port: int) -> int:
    from sglang_ascend.contract import record

    for model, calls in record.record(port).items():
        print(f"{model}: {calls} calls")
    return 0


def _check(given: argparse.Namespace) -> int:
    report = check.check(
        tuple(given.soc or check.SOCS),
        given.operator,
        given.packages,
        progress=lambda text: print(f"... {text}", file=sys.stderr, flush=True),
    )
    if given.json:
        given.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    print(f"torch_npu {packages.TORCH_NPU_VERSION}; {len(report.operators)} operators")
    for soc in report.socs:
        print(f"\n{soc}: {len(report.results[soc])} calls of operators")
        _print_refusals(report.refusals[soc])
    print(f"\n{len(report.problems)} problems" if report.problems else "\nok: the contract holds")
    for problem in report.problems:
        print(f"  {problem}")
    return 1 if report.problems else 0


def _print_refusals(rows: list[dict]) -> None:
    """Who refuses the wrong calls: a line for each combination."""
    print(f"{len(rows)} wrong calls, refused by")
    counts = Counter((row["specification"], row["npu"]) for row in rows)
    for (specification, npu), count in counts.most_common():
        names = [*(["the specification"] if specification else []), *([npu] if npu else [])]
        print(f"  {count:5}  {' and '.join(names) or 'NOBODY'}")


if __name__ == "__main__":
    sys.exit(main())
