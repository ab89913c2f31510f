"""``python -m benchmark.partners``: install the servers that benchmark.serving compares with."""

from __future__ import annotations

import argparse
import sys

from benchmark.partners import environments
from sglang_ascend.errors import ConfigError

_DESCRIPTION = """\
Installs partners of `python -m benchmark.serving` that need an environment of their own, each below
$SGLANG_ASCEND_PARTNERS (default: partners/ in the cache folder of this package). Stock SGLang and
transformers need no installation: they are dependencies of this package.
"""


def main(argv: list[str] | None = None) -> int:
    """0; 2 where something asked for cannot be done."""
    remarks = "\n".join(
        f"  {name}: {recipe.requirement}; {recipe.remark}"
        for name, recipe in environments.RECIPES.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.partners",
        description=_DESCRIPTION,
        epilog=f"partners:\n{remarks}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="what is installed")
    adding = commands.add_parser("install", help="install a partner, replacing an older one")
    adding.add_argument("name", metavar="{" + ",".join(environments.RECIPES) + "}")
    given = parser.parse_args(argv)
    try:
        if given.command == "install":
            print(f"installed {environments.install(given.name)}")
            return 0
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in environments.RECIPES:
        there = environments.is_installed(name)
        said = environments.installed_requirement(name) if there else environments.how_to(name)
        print(f"{name}: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
