"""A small repository with the real launch scripts and stand-ins for everything they install.

Wheels are built here and pip is kept off the network, so that a setup takes seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP_LIMIT_S = 400

# An editable build without setuptools: one wheel with a .pth file.
_BACKEND = """
import pathlib, zipfile
NAME = "sglang_ascend-0.1.0"
def build_editable(directory, config_settings=None, metadata_directory=None):
    name = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w") as wheel:
        wheel.writestr("sglang_ascend.pth", str(pathlib.Path.cwd() / "src"))
        wheel.writestr(f"{NAME}.dist-info/METADATA",
                       "Metadata-Version: 2.1\\nName: sglang-ascend\\nVersion: 0.1.0\\n")
        wheel.writestr(f"{NAME}.dist-info/WHEEL",
                       "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{NAME}.dist-info/RECORD", "")
    return name
"""
_PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
_ECHO = "import os, sys\nprint(__file__, os.getcwd(), sys.argv[1:])\nsys.exit(7)\n"


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Write a pure wheel ``name``-``version`` that holds ``files``."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)


class Repository:
    """The small repository; its path has a space in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.wheels = root / "wheels"
        for name in ("launch", ".ci"):
            shutil.copytree(ROOT / name, root / name)
        for name in ("requirements", "wheels", "src/sglang_ascend", "src/pytest"):
            (root / name).mkdir(parents=True)
        (root / "backend.py").write_text(_BACKEND)
        (root / "pyproject.toml").write_text(_PYPROJECT)
        (root / "src/sglang_ascend/launch_server.py").write_text(_ECHO)
        (root / "src/pytest/__main__.py").write_text(_ECHO)
        make_wheel(self.wheels, "first", "1.0", {"first.py": ""})
        make_wheel(self.wheels, "triton_ascend", "3.2.0", {"triton/__init__.py": "ascend = 1\n"})
        make_wheel(self.wheels, "apart", "1.0", {"apart.py": ""})
        for name, text in {
            "serve": "first==1.0",
            "dev": "",
            "contract": "apart==1.0",
            "kernels": "",
            "no-deps": "triton-ascend==3.2.0",
            "constraints": "",
        }.items():
            self.require(name, text)

    def require(self, name: str, text: str) -> None:
        (self.root / "requirements" / f"{name}.txt").write_text(text + "\n")

    def environ(self, **changes: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "SGLANG_ASCEND"))}
        offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self.wheels.as_uri()}
        return {**kept, **offline, "PIP_CONFIG_FILE": os.devnull, **changes}

    def run(self, script: str, *args: str, cwd: Path | None = None, **environ: str):
        """Run a script to its end; output is text."""
        return subprocess.run(
            ["bash", "-u", str(self.root / script), *args],
            cwd=cwd or self.root,
            env=self.environ(**environ),
            capture_output=True,
            text=True,
            timeout=SETUP_LIMIT_S,
        )

    def setup(self, **environ: str):
        return self.run("launch/setup.sh", **environ)

    def imports(self, *modules: str) -> bool:
        """Can the environment's Python import all of ``modules``?"""
        command = [self.venv / "bin/python", "-c", f"import {', '.join(modules)}"]
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Repository:
    """A repository that was set up once; tests damage it and set it up again."""
    root = tmp_path_factory.mktemp("small repository") / "root"
    root.mkdir()
    repository = Repository(root)
    done = repository.setup()
    assert done.returncode == 0, done.stderr
    return repository


@pytest.fixture
def repository(prepared: Repository) -> Repository:
    """``prepared``, made whole again should the test before have left it broken."""
    done = prepared.setup()
    assert done.returncode == 0, done.stderr
    return prepared
