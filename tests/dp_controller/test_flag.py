"""``--dp-policy``: parsed, published, refused in one line."""

from __future__ import annotations

import pytest

from sglang_ascend.deploy import own_flags
from sglang_ascend.dp_controller import flag
from sglang_ascend.errors import ConfigError
from sglang_ascend.launch_server import main, parse_own_flags


def published(*argv, environ=None):
    """What the launcher leaves for the policy, and the flags that go to SGLang."""
    environ = dict(environ or {})
    own, rest = parse_own_flags(list(argv))
    own_flags.publish(own_flags.given(own, environ), environ)
    return environ[flag.ENV], rest


def test_the_flag_travels_in_the_environment_and_leaves_sglang_s_alone():
    value, rest = published("--dp-size", "2", "--dp-policy", "upstream")
    assert value == "upstream"
    assert rest == ["--dp-size", "2"]


def test_the_flag_wins_over_the_variable_and_the_variable_over_the_default():
    before = {flag.ENV: "upstream"}
    assert published("--dp-policy", "ascend", environ=before)[0] == "ascend"
    assert published(environ=before)[0] == "upstream"
    assert published()[0] == "ascend"


def test_it_is_in_the_help(capsys):
    parse_own_flags(["--help"])
    assert "--dp-policy {ascend,upstream}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--dp-policy", "fastest"], "--dp-policy 'fastest' is unknown; choose ascend or upstream"),
        (["--dp-policy"], "argument --dp-policy: expected one argument"),
    ],
)
def test_a_bad_value_is_one_line(argv, reason, capsys):
    assert main(["--device", "reference", *argv]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"error: {reason}")


def test_a_bad_variable_is_refused_by_name():
    own, _ = parse_own_flags([])
    with pytest.raises(ConfigError, match=f"{flag.ENV} 'x' is unknown"):
        own_flags.given(own, {flag.ENV: "x"})
    with pytest.raises(ConfigError, match=f"{flag.ENV} 'x' is unknown"):
        flag.current({flag.ENV: "x"})


def test_a_method_of_sglang_wins_over_the_default_and_contradicts_the_flag():
    assert flag.resolve(None, "auto") == flag.resolve("ascend", "auto") == "ascend"
    assert flag.resolve("upstream", "auto") == "upstream"
    assert flag.resolve(None, "round_robin") == flag.resolve("upstream", "total_tokens")
    with pytest.raises(ConfigError, match="--load-balance-method total_tokens contradict"):
        flag.resolve("ascend", "total_tokens")
