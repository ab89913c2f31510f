"""The folder cache: whole or absent, whatever happens while it is made."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys

import pytest

from sglang_ascend.errors import ConfigError
from sglang_ascend.models import cache

_HALF_DONE = """
import sys, time
from pathlib import Path
from sglang_ascend.models import cache
def build(scratch):
    (scratch / "weights").write_bytes(b"x" * 10)
    print("half", flush=True)
    time.sleep(600)
cache.publish(Path(sys.argv[1]), build, 0)
"""


def build(scratch):
    (scratch / "weights").write_bytes(b"0123456789")
    (scratch / "inner").mkdir()
    (scratch / "inner" / "config").write_text("{}")


def forbidden(scratch):
    raise AssertionError("built although it was whole")


@pytest.fixture
def folder(tmp_path):
    return cache.publish(tmp_path / "deep" / "model", build, 0)


def test_a_whole_folder_is_not_built_again(folder):
    assert cache.fault(folder) is None
    assert cache.publish(folder, forbidden, 0) == folder
    assert (folder / "inner" / "config").read_text() == "{}"


def truncate(folder):
    (folder / "weights").write_bytes(b"0123")


def change_in_place(folder):
    (folder / "weights").write_bytes(b"012345678X")
    os.utime(folder / "weights", (1, 1))


def remove_a_file(folder):
    (folder / "inner" / "config").unlink()


def remove_manifest(folder):
    (folder / cache.MANIFEST).unlink()


def break_manifest(folder):
    (folder / cache.MANIFEST).write_text('{"files": {"weights"')


def replace_manifest(folder):
    (folder / cache.MANIFEST).write_text('{"files": [1]}')


@pytest.mark.parametrize(
    "damage",
    [truncate, change_in_place, remove_a_file, remove_manifest, break_manifest, replace_manifest],
)
def test_damage_is_noticed_and_repaired(folder, damage):
    damage(folder)
    assert cache.fault(folder)
    cache.publish(folder, build, 0)
    assert cache.fault(folder) is None
    assert (folder / "weights").read_bytes() == b"0123456789"


def test_a_copied_folder_is_still_whole(folder):
    """Copying changes modification times, not content."""
    os.utime(folder / "weights", (1, 1))
    assert cache.fault(folder) is None


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "model").write_text("in the way")
    assert cache.fault(cache.publish(tmp_path / "model", build, 0)) is None


def test_killed_in_the_middle(tmp_path):
    folder = tmp_path / "model"
    process = subprocess.Popen(
        [sys.executable, "-c", _HALF_DONE, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    process.stdout.close()
    assert not folder.exists()
    cache.publish(folder, build, 0)  # the lock died with its holder
    assert cache.fault(folder) is None
    assert sorted(p.name for p in tmp_path.iterdir()) == [".model.lock", "model"]


def test_a_failing_build_leaves_nothing_that_counts(tmp_path):
    def fail(scratch):
        (scratch / "weights").write_bytes(b"0123")
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="^no$"):
        cache.publish(tmp_path / "model", fail, 0)
    assert cache.fault(tmp_path / "model") is not None


def test_waiting_for_another_maker_has_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "LOCK_WAIT_S", 0.3)
    with open(tmp_path / ".model.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process has been preparing"):
            cache.publish(tmp_path / "model", build, 0)


def test_no_space(tmp_path):
    with pytest.raises(ConfigError, match="MiB free, preparing model needs .* MiB; free some"):
        cache.publish(tmp_path / "model", build, 1 << 62)


def test_no_place_to_write(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write the model cache .*SGLANG_ASCEND_CACHE"):
        cache.publish(tmp_path / "file" / "model", build, 0)


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.delenv(cache.CACHE_ENV, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.root() == tmp_path / "sglang_ascend"
    monkeypatch.setenv(cache.CACHE_ENV, str(tmp_path / "mine"))
    assert cache.root() == tmp_path / "mine"


def test_manifest_lists_size_and_hash(folder):
    entry = json.loads((folder / cache.MANIFEST).read_text())["files"]["weights"]
    assert entry["bytes"] == 10
    # SHA-256 of "0123456789".
    assert entry["sha256"].startswith("84d89877f0d4041efb6bf91a16f0248f")
