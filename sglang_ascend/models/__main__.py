"""``python -m sglang_ascend.models prepare [NAME]``: make a model ready and print its folder."""

from __future__ import annotations

import argparse
import sys

from sglang_ascend.errors import ConfigError
from sglang_ascend.models import catalog, smollm2


def main(argv: list[str] | None = None) -> int:
    """Return 0, or 2 with one line on stderr where the model cannot be prepared."""
    parser = argparse.ArgumentParser(prog="python -m sglang_ascend.models", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="prepare a model unless it is ready")
    prepare.add_argument("name", nargs="?", default=catalog.DEFAULT_MODEL, choices=catalog.EMBEDDED)
    convert = commands.add_parser("convert", help="run by prepare: reports a failure on stdout")
    convert.add_argument("name", choices=[smollm2.NAME])
    options = parser.parse_args(argv)
    try:
        print(smollm2.convert() if options.command == "convert" else catalog.resolve(options.name))
    except ConfigError as error:
        if options.command == "convert":
            print(error)
        else:
            print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
