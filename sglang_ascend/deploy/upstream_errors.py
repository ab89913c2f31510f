"""SGLang's own refusals of its flags, as one line each.

SGLang refuses flags in three ways: argparse prints a usage text of several hundred lines before the
reason, argument resolution raises, and ``check_server_args``, which only the engine calls, asserts.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import traceback
from collections.abc import Iterator

from sglang_ascend.errors import ConfigError

_REFUSALS = (
    AssertionError,
    ImportError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


@contextlib.contextmanager
def as_config_errors() -> Iterator[None]:
    """Turn whatever SGLang raises about its arguments inside the block into ConfigError."""
    before = argparse.ArgumentParser.error
    # SGLang builds its parser itself, so that there is no instance to give another `error` to.
    argparse.ArgumentParser.error = _raise
    try:
        yield
    except ConfigError:
        raise
    except _REFUSALS as error:
        raise ConfigError(_message(error)) from error
    finally:
        argparse.ArgumentParser.error = before


def check_resolved(server_args) -> None:
    """Run SGLang's last check of resolved arguments now, before any process exists.

    The engine runs it again, and it normalises LoRA paths, which works only once: hence the copy.
    """
    copy.deepcopy(server_args).check_server_args()


def _raise(parser: argparse.ArgumentParser, message: str) -> None:
    raise ConfigError(f"{message}; `python -m sglang_ascend.launch_server --help` lists all flags")


def _message(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if not text:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = f"it does not hold that `{(frame.line or '').removeprefix('assert ')}`"
    return f"SGLang refuses these flags: {text}; change them or leave them at their defaults"
