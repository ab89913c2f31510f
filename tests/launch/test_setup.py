"""Setting up: quick when ready, right again after every kind of damage."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest

from tests.launch.conftest import SETUP_LIMIT_S, make_wheel

EVERYTHING = ("first", "triton", "sglang_ascend")


def test_a_ready_environment_is_left_alone(repository):
    assert repository.imports(*EVERYTHING)
    before = (repository.venv / ".ready").stat().st_mtime_ns
    done = repository.setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (repository.venv / ".ready").stat().st_mtime_ns == before


def test_a_broken_python_means_a_new_environment(repository):
    (repository.venv / "bin/python").unlink()
    done = repository.setup()
    assert done.returncode == 0, done.stderr
    assert repository.imports(*EVERYTHING)


def test_a_removed_package_and_a_broken_stamp_are_noticed(repository):
    for path in repository.venv.glob("lib/python*/site-packages/first*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (repository.venv / ".ready").write_text("")
    done = repository.setup()
    steps = [line for line in done.stderr.splitlines() if line.startswith("[setup")]
    assert [step.split()[1] for step in steps] == ["1/4]", "2/4]", "3/4]", "4/4]"]
    assert "using" in steps[0]
    assert repository.imports(*EVERYTHING)


def test_a_kill_in_the_middle_is_repaired(repository):
    (repository.venv / ".ready").unlink()
    process = subprocess.Popen(
        ["bash", str(repository.root / "launch/setup.sh")],
        env=repository.environ(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stderr:
        if line.startswith("[setup 2/4]"):
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    process.stderr.close()
    assert (repository.venv / ".unfinished").exists()
    # What a killed pip may leave: a package that counts as installed but lacks a file.
    for path in repository.venv.glob("lib/python*/site-packages/first.py"):
        path.unlink()
    assert repository.setup().returncode == 0
    assert repository.imports(*EVERYTHING)


def test_a_failing_install_says_so_and_can_go_on(repository):
    make_wheel(repository.wheels, "second", "2.0", {"second.py": ""})
    make_wheel(repository.wheels, "extra_one", "1.0", {"extra_one.py": ""})
    repository.require("bench", "extra-one==1.0")
    repository.require("serve", "first==1.0\nnowhere-to-be-found==1.0")
    try:
        done = repository.setup()
        assert done.returncode == 2
        assert "error: pip failed with exit code 1" in done.stderr.splitlines()[-1]
        assert not (repository.venv / ".unfinished").exists()
        repository.require("serve", "first==1.0\nsecond==2.0")
        assert repository.setup(SGLANG_ASCEND_EXTRAS="bench").returncode == 0
        assert repository.imports("second", "extra_one")
    finally:
        repository.require("serve", "first==1.0")


def test_two_at_once(repository):
    (repository.venv / ".ready").unlink()
    both = [
        subprocess.Popen(
            ["bash", str(repository.root / "launch/setup.sh")],
            env=repository.environ(),
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    errors = [process.communicate(timeout=SETUP_LIMIT_S)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert sum("[setup 1/4]" in text for text in errors) == 1
    assert sum("waiting for another setup" in text for text in errors) == 1


def test_upstream_triton_does_not_stay(repository):
    """A CUDA build of torch brings it; both distributions own ``triton/``."""
    make_wheel(repository.wheels, "triton", "3.7.1", {"triton/__init__.py": "upstream = 1\n"})
    repository.require("serve", "first==1.0\ntriton==3.7.1")
    try:
        assert repository.setup().returncode == 0
        done = subprocess.run(
            [repository.venv / "bin/python", "-c", "import triton; triton.ascend"], timeout=60
        )
        assert done.returncode == 0
        assert not list(repository.venv.glob("lib/python*/site-packages/triton-3*"))
        assert repository.setup().stderr == ""
    finally:
        repository.require("serve", "first==1.0")


def test_sets_stay_until_the_environment_is_made_anew(repository):
    """serve.sh after test.sh must find everything ready, and test.sh after that as well."""
    make_wheel(repository.wheels, "for_tests", "1.0", {"for_tests.py": ""})
    repository.require("dev", "for-tests==1.0")
    try:
        assert repository.setup().returncode == 0
        assert not repository.imports("for_tests")
        assert repository.run("launch/test.sh").returncode == 7
        assert repository.imports("for_tests")
        for sets in ("", "dev", "contract dev"):
            assert repository.setup(SGLANG_ASCEND_EXTRAS=sets).stderr == ""
        repository.require("more", "")
        assert "[setup 2/4]" in repository.setup(SGLANG_ASCEND_EXTRAS="more dev").stderr
    finally:
        repository.require("dev", "")


def test_the_contract_set_stays_off_the_path(repository):
    module = repository.venv / "contract/apart.py"
    assert repository.setup(SGLANG_ASCEND_EXTRAS="contract").returncode == 0
    assert module.exists() and not repository.imports("apart")
    shutil.rmtree(module.parent)
    assert repository.setup(SGLANG_ASCEND_EXTRAS="contract").returncode == 0
    assert module.exists()


def one_line(done) -> str:
    """The only line that a refusal writes."""
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    return done.stderr


def test_an_unknown_extra(repository, tmp_path):
    done = repository.setup(SGLANG_ASCEND_EXTRAS="nonsense", SGLANG_ASCEND_VENV=f"{tmp_path}/venv")
    assert 'SGLANG_ASCEND_EXTRAS names "nonsense"' in one_line(done)


def test_missing_debian_packages(repository, tmp_path):
    table = repository.root / "launch/debian-packages.txt"
    before = table.read_text()
    table.write_text(
        before + "libnowhere1 library:libnowhere.so.1 always\nother file:/no/x npu\n"
        "no-tool command:no-such-tool always\nlibnowhere1 file:/no/y always\n"
    )
    try:
        done = repository.setup(SGLANG_ASCEND_VENV=f"{tmp_path}/venv")
        assert one_line(done).endswith("run: sudo apt-get install -y libnowhere1 no-tool\n")
    finally:
        table.write_text(before)


def test_a_wrong_python(repository, tmp_path):
    done = repository.setup(
        SGLANG_ASCEND_PYTHON="/bin/false", SGLANG_ASCEND_VENV=f"{tmp_path}/venv"
    )
    assert "SGLANG_ASCEND_PYTHON=/bin/false is no Python 3.11" in one_line(done)


@pytest.mark.parametrize(
    ("script", "module", "where"),
    [
        ("launch/serve.sh", "sglang_ascend/launch_server.py", "caller"),
        ("launch/test.sh", "pytest/__main__.py", "root"),
        (".ci/run", "pytest/__main__.py", "root"),
    ],
)
def test_scripts_pass_on_arguments_and_exit_code(repository, tmp_path, script, module, where):
    done = repository.run(script, "--a b", "c", cwd=tmp_path)
    assert done.returncode == 7
    folder = tmp_path if where == "caller" else repository.root
    assert done.stdout == f"{repository.root / 'src' / module} {folder} ['--a b', 'c']\n"
