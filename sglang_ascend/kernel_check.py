"""``python -m sglang_ascend.kernel_check``: check the Triton-Ascend kernels without a chip."""

from __future__ import annotations

import argparse
import sys

from sglang_ascend.errors import ConfigError
from sglang_ascend.kernel_proof import memory_table, page
from sglang_ascend.kernels.launching import MEMORY_TABLE
from sglang_ascend.kernels.registry import load_all


def main(arguments: list[str] | None = None) -> int:
    """Print the table of on-chip memory; return 0 if all passed, 1 if one failed, 2 if no tools."""
    parser = argparse.ArgumentParser(
        prog="python -m sglang_ascend.kernel_check",
        description="Compile every configuration of the Triton-Ascend kernels for 910B and 910C up "
        "to HIVM, and print its use of on-chip memory against the limits. Needs triton-ascend and "
        "ascendnpu-ir, no chip and no CANN. It is no proof that a kernel runs on Ascend.",
    )
    parser.add_argument("kernels", nargs="*", help="names of kernels; default: all")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write kernels/memory_table.json, from which launchers pick, and docs/kernels.md",
    )
    options = parser.parse_args(arguments)
    try:
        return _check(options.kernels, options.write)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _check(names: list[str], write: bool) -> int:
    specs = load_all()
    unknown = [name for name in names if name not in specs]
    if unknown:
        raise ConfigError(f"no kernel is called {', '.join(unknown)}; known: {', '.join(specs)}")
    if names and write:
        raise ConfigError("--write needs all kernels; leave the names out")
    if write and not page.PAGE.parent.is_dir():
        raise ConfigError("--write needs a checkout of the repository, with its folder docs/")
    chosen = [specs[name] for name in names] or list(specs.values())
    rows, failures = memory_table.rows_of(chosen)
    print(memory_table.printed(rows))
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    if write:
        MEMORY_TABLE.write_text(memory_table.document(rows))
        page.PAGE.write_text(page.text(specs.values(), rows))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
