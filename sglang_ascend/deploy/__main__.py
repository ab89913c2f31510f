"""``python -m sglang_ascend.deploy check FILE``: can this deployment be?"""

from __future__ import annotations

import argparse
import sys

from sglang_ascend.deploy import deployment_check, deployment_file
from sglang_ascend.deploy.deployment import Deployment, Phase
from sglang_ascend.deploy.deployment_memory import RankMemory
from sglang_ascend.errors import ConfigError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sglang_ascend.deploy",
        description="Check a deployment before anything starts: keys, layout, memory.",
        epilog="A deployment is a YAML file (see configs/deployments), or the name of one there.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="say whether FILE can be deployed, and what it holds")
    check.add_argument("file", help="path of a deployment YAML, or a name in configs/deployments")
    given = parser.parse_args(arguments)
    try:
        deployment = deployment_file.read(given.file)
        budgets = deployment_check.check(deployment)
    except ConfigError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2
    print("\n".join(describe(deployment, budgets)))
    return 0


def describe(deployment: Deployment, budgets: dict[Phase, RankMemory]) -> list[str]:
    """Lines of text: one a role, then what its ranks hold."""
    lines = [f"{deployment.name}: {deployment.model} on {deployment.cards} cards, it fits"]
    for role in deployment.roles:
        budget = budgets[role.phase]
        lines.append(
            f"  {role.phase}: {role.instances} instance(s) of {role.topology.nodes} x "
            f"{role.topology.cards_per_node} cards, {role.ranks} ranks, attention TP "
            f"{role.attention_tp} x DP {role.attention_dp}, {role.transport}"
        )
        parts = (f"{name} {size / (1 << 30):.2f}" for name, size in budget.parts.items())
        lines.append(f"    GiB a rank: {', '.join(parts)}; KV pool {budget.kv_tokens} tokens")
    return lines


if __name__ == "__main__":
    sys.exit(main())
