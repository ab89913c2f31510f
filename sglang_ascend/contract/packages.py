"""The versions that the contract is checked with, and where torch_npu is found.

torch_npu stays out of the environment that serves: with it installed and CANN missing, `import
torch` fails. `launch/test.sh` installs it into `<environment>/contract`, which only the processes
that check the contract have on their path.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from sglang_ascend.deploy.dependencies import installed_version
from sglang_ascend.errors import ConfigError
from sglang_ascend.plugin.device_choice import TORCH_NPU_VERSION

FOLDER = Path(sys.prefix) / "contract"


def install_command(folder: Path = FOLDER) -> str:
    """The command that brings torch_npu for the contract check."""
    return (
        f"{sys.executable} -m pip install --no-deps --target {folder}"
        f" torch_npu=={TORCH_NPU_VERSION}"
    )


def find_torch_npu(folder: Path = FOLDER) -> Path:
    """The package torch_npu in a folder that pip wrote with --target.

    Raises:
        ConfigError: torch_npu is missing there, or it or torch has a version that is not promised.
    """
    found = version_in(folder)
    if found is None:
        raise ConfigError(
            f"the contract check needs torch_npu {TORCH_NPU_VERSION} in {folder};"
            f" run `{install_command(folder)}`"
        )
    if found != TORCH_NPU_VERSION:
        raise ConfigError(
            f"torch_npu {found} is in {folder}; the contract is promised for {TORCH_NPU_VERSION};"
            f" run `rm -r {folder}` and `{install_command(folder)}`"
        )
    torch = (installed_version("torch") or "none").partition("+")[0]
    if torch != TORCH_NPU_VERSION:
        raise ConfigError(
            f"torch is {torch}, torch_npu {found} needs the same version; run"
            f" `{sys.executable} -m pip install torch=={TORCH_NPU_VERSION}`"
        )
    return folder / "torch_npu"


def version_in(folder: Path = FOLDER) -> str | None:
    """Version of the torch_npu in a folder, or None."""
    for distribution in importlib.metadata.distributions(path=[str(folder)]):
        if distribution.metadata["Name"].replace("-", "_") == "torch_npu":
            return distribution.version
    return None
