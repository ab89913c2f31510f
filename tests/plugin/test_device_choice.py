"""The device choice, against real distribution metadata laid out in a temporary folder."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys

import pytest

from sglang_ascend.errors import ConfigError
from sglang_ascend.plugin import device_choice


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a distribution of the given name and version on sys.path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(name: str, version: str) -> None:
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        importlib.invalidate_caches()

    return put


@pytest.fixture
def cann(tmp_path, monkeypatch):
    """Put stand-ins of CANN's libraries on the library path."""
    folder = tmp_path / "cann"
    folder.mkdir()
    for name in ("libascendcl.so", "libhccl.so"):
        (folder / name).write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))


def torch_version() -> str:
    return importlib.metadata.version("torch").split("+")[0]


def test_auto_takes_the_reference_device_here_and_says_why():
    choice = device_choice.choose("auto")
    assert choice.device == "reference"
    assert "torch_npu" in choice.reason


def test_auto_takes_npu_where_everything_is_present(install, cann):
    install("torch_npu", torch_version())
    assert device_choice.choose("auto").device == "npu"


def test_npu_without_torch_npu_names_the_command():
    with pytest.raises(ConfigError, match=r"pip install torch_npu==2\.13\.0"):
        device_choice.choose("npu")


def test_npu_without_cann_names_the_libraries(install, monkeypatch):
    install("torch_npu", torch_version())
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    with pytest.raises(ConfigError, match=r"CANN.*libascendcl\.so, libhccl\.so.*set_env\.sh"):
        device_choice.choose("npu")


def test_npu_with_another_torch_names_both_versions(install, cann):
    install("torch_npu", "2.9.0")
    with pytest.raises(ConfigError, match=rf"torch {torch_version()} and torch_npu 2\.9\.0"):
        device_choice.choose("npu")


def test_post_releases_of_torch_npu_match(install, cann):
    install("torch_npu", f"{torch_version()}.post2")
    assert device_choice.choose("npu").device == "npu"


def test_unknown_device_lists_the_choices():
    with pytest.raises(ConfigError, match="auto, npu, reference"):
        device_choice.choose("cuda")


def test_reference_works_beside_torch_npu_without_cann(install, tmp_path):
    """torch_npu's autoload would break `import torch` in a child that follows the choice."""
    package = tmp_path / "torch_npu"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('libhccl.so: cannot open')\n")
    install("torch_npu", torch_version())
    entry = tmp_path / f"torch_npu-{torch_version()}.dist-info" / "entry_points.txt"
    entry.write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    # Another test may have published a choice in this process.
    environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    broken = subprocess.run(
        [sys.executable, "-c", "import torch"], env=environ, capture_output=True, timeout=120
    )
    assert broken.returncode != 0, "the stand-in must break a plain import, as the real one does"
    device_choice.publish(device_choice.choose("reference"), environ)
    subprocess.run([sys.executable, "-c", "import torch"], env=environ, check=True, timeout=120)
