"""SGLang's refusals become one line, and nothing stays changed afterwards."""

from __future__ import annotations

import argparse
import runpy

import pytest

from sglang_ascend.deploy.upstream_errors import as_config_errors
from sglang_ascend.errors import ConfigError


def test_argparse_says_only_why(capsys):
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int)
    with pytest.raises(ConfigError, match="--size: invalid int value: 'x'; .*--help"):
        with as_config_errors():
            parser.parse_args(["--size", "x"])
    assert capsys.readouterr() == ("", "")
    with pytest.raises(SystemExit):
        parser.parse_args(["--size", "x"])


def test_an_assertion_without_words_is_quoted(tmp_path):
    source = tmp_path / "refusing.py"  # pytest would rewrite an assert that stood here
    source.write_text("size = 3\nassert size % 2 == 0\n")
    with pytest.raises(ConfigError, match="does not hold that `size % 2 == 0`"):
        with as_config_errors():
            runpy.run_path(str(source))


@pytest.mark.parametrize("error", [ValueError, AssertionError, TypeError, RuntimeError, OSError])
def test_several_lines_become_one(error):
    with pytest.raises(ConfigError, match="^SGLang refuses these flags: two lines; change"):
        with as_config_errors():
            raise error("two\nlines")


def test_our_own_errors_and_exits_pass_unchanged():
    with pytest.raises(ConfigError, match="^ours$"), as_config_errors():
        raise ConfigError("ours")
    with pytest.raises(SystemExit), as_config_errors():
        raise SystemExit(0)
