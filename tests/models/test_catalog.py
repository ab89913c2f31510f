"""What --model-path accepts."""

from __future__ import annotations

import pytest

from sglang_ascend.errors import ConfigError
from sglang_ascend.models import catalog


def test_a_local_folder(tmp_path):
    assert catalog.resolve(str(tmp_path)) == tmp_path


def test_a_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    (tmp_path / catalog.TINY_DEEPSEEK_V3).mkdir()
    monkeypatch.chdir(tmp_path)
    inside = catalog.resolve(catalog.TINY_DEEPSEEK_V3.upper())
    assert inside.parent.name == "models"
    assert catalog.resolve(f"./{catalog.TINY_DEEPSEEK_V3}").name == catalog.TINY_DEEPSEEK_V3


@pytest.mark.parametrize("name", ["", "smolm2-135m", "deepseek-ai/DeepSeek-V3", "/no/such/folder"])
def test_unknown_names_list_the_known_ones(name):
    with pytest.raises(ConfigError, match="smollm2-135m-instruct, tiny-deepseek-v3") as refused:
        catalog.resolve(name)
    assert "\n" not in str(refused.value)


def test_a_near_miss_is_named():
    with pytest.raises(ConfigError, match="did you mean smollm2-135m-instruct"):
        catalog.resolve("smollm2-135m-instuct")
