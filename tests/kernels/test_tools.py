"""What is missing is named, with the command that brings it."""

from __future__ import annotations

import pytest

from sglang_ascend import kernel_check
from sglang_ascend.errors import ConfigError
from sglang_ascend.kernel_proof import page, tools
from sglang_ascend.kernels import versions


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(tools, "_LLVM_FOLDER", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    tools.host_tool.cache_clear()
    yield
    tools.host_tool.cache_clear()


@pytest.mark.parametrize(
    "tool, package",
    [
        ("mlir-translate", "mlir-19-tools"),
        ("opt", "llvm-19"),
        ("llc", "llvm-19"),
        ("gcc", "gcc libc6-dev"),
    ],
)
def test_a_missing_host_tool_names_its_debian_package(nothing_installed, tool, package):
    with pytest.raises(ConfigError, match=f"{tool}.*`sudo apt-get install -y {package}`"):
        tools.host_tool(tool)


def test_a_missing_npu_compiler_names_its_package(monkeypatch):
    tools.npu_compiler.cache_clear()
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install --no-deps ascendnpu-ir==1.2.0"):
        tools.npu_compiler("bishengir-compile")


@pytest.mark.parametrize("found, words", [("3.2.1", "3.2.1 is installed"), (None, "not installed")])
@pytest.mark.parametrize("pin", [versions.TRITON, versions.TORCH_NPU])
def test_another_version_is_refused_with_the_command_that_brings_the_right_one(
    monkeypatch, found, words, pin
):
    def version(name):
        if found is None:
            raise versions.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(versions, "version", version)
    with pytest.raises(ConfigError, match=f"{words}.*`pip install --no-deps {pin}`"):
        versions.require_installed(pin)


@pytest.mark.parametrize(
    "pin, file",
    [
        (versions.TRITON, "no-deps.txt"),
        (versions.TORCH_NPU, "npu.txt"),
        (tools.COMPILER_PIN, "kernels.txt"),
    ],
)
def test_pins_are_those_of_the_requirements(pin, file):
    assert pin in (page.PAGE.parents[1] / "requirements" / file).read_text().splitlines()


def test_a_tool_that_does_not_end_is_stopped(monkeypatch):
    monkeypatch.setattr(tools, "STEP_LIMIT_S", 0.2)
    with pytest.raises(ConfigError, match="sleep has not ended after 0 s; it was stopped"):
        tools.run(["sleep", "60"])


def test_the_command_prints_the_table_and_refuses_unknown_kernels(capsys):
    assert kernel_check.main(["split_combine"]) == 0
    assert "| split_combine/dim512/910B | 162.1 | 0.0 | 0.0 | - |" in capsys.readouterr().out
    assert kernel_check.main(["no_such_kernel"]) == 2
    assert "no kernel is called no_such_kernel; known: " in capsys.readouterr().err
    assert kernel_check.main(["split_combine", "--write"]) == 2
    assert "--write needs all kernels" in capsys.readouterr().err
