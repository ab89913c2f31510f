"""The training code of tiny-deepseek-v3, on the held-out text that the repository carries."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

import sglang_ascend
from sglang_ascend.errors import ConfigError
from sglang_ascend.models.training import corpus, documents, train
from sglang_ascend.models.training.geometry import model_config
from sglang_ascend.models.training.host import new_main_model
from sglang_ascend.models.training.layout import load_mtp, save_checkpoint
from sglang_ascend.models.training.loop import (
    Budget,
    Recipe,
    batches,
    train_main,
    train_mtp,
)
from sglang_ascend.models.training.mtp import MtpModule
from sglang_ascend.models.training.routing import count_load, gates, update_bias
from sglang_ascend.models.training.tokenizer import train_tokenizer
from sglang_ascend.plugin import torchvision_ops

torchvision_ops.declare_if_missing()

FOLDER = Path(sglang_ascend.__file__).parent / "models/tiny_deepseek_v3"


@pytest.fixture(scope="module")
def chapters():
    parsed = []
    for part in (FOLDER / "heldout.txt").read_text().strip("\n").split("\n\n"):
        heading, *lines = part.strip("\n").splitlines()
        book, number = heading.rsplit(" ", 1)
        parsed.append(
            [corpus.Verse(book, int(number), i, line) for i, line in enumerate(lines, start=1)]
        )
    return parsed


@pytest.fixture
def one_thread():
    """Two threads add the gradients of a shared embedding row in either order, and round so."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tokenizer(chapters):
    return train_tokenizer(map(documents.chapter_text, chapters), 2048, 4096)


def test_held_out_file_is_the_held_out_chapters(chapters):
    assert [(chapter[0].book, chapter[0].chapter) for chapter in chapters] == list(corpus.HELD_OUT)
    assert "\n".join(map(documents.chapter_text, chapters)) == (FOLDER / "heldout.txt").read_text()


def test_missing_text_is_one_clear_line(tmp_path, capsys):
    with pytest.raises(ConfigError, match="apt-get install bible-kjv") as raised:
        corpus.read_verses(tmp_path)
    assert "\n" not in str(raised.value)
    with pytest.raises(SystemExit) as stopped:
        train.main(["--out", str(tmp_path / "out"), "--corpus-root", str(tmp_path)])
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: training text not found")
    assert printed.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_conversations_end_each_answer_with_eos(chapters, tokenizer):
    rng = random.Random(0)
    for _ in range(20):
        messages = documents.conversation(rng.choice(chapters), rng)
        ids = tokenizer.apply_chat_template(messages)["input_ids"]
        answers = sum(message["role"] == "assistant" for message in messages)
        assert ids.count(tokenizer.eos_token_id) == answers
        assert ids[-1] == tokenizer.eos_token_id


@pytest.mark.parametrize(("size", "length"), [(1000, 7), (9, 8), (8, 8)])
def test_windows_lose_only_the_ends(size, length):
    stream = torch.arange(size)
    rows = documents.windows(stream, length, random.Random(1))
    assert rows.shape[1:] == (length + 1,) or len(rows) == 0
    assert torch.equal(rows[1:, 0], rows[:-1, -1])
    predicted = rows[:, 1:].numel()
    assert size - 1 - predicted < 2 * length


def test_bias_moves_only_outside_the_band():
    model = new_main_model(model_config())
    count_load(model)
    gate = gates(model)[0]
    # Mean 100: the band is 40 to 180.
    gate.expert_load[:] = torch.tensor([10, 39, 41, 190, 179, 141] + [100] * 10)
    skews = update_bias(model, 0.5)
    assert gate.e_score_correction_bias.tolist() == [0.5, 0.5, 0.0, -0.5, 0.0, 0.0] + [0.0] * 10
    assert skews[0] == pytest.approx(1.9)
    assert gate.expert_load.eq(0).all()


def test_training_learns_repeats_and_survives_the_checkpoint(
    chapters, tokenizer, tmp_path, one_thread
):
    config = model_config()

    def run():
        torch.manual_seed(0)
        main, mtp = new_main_model(config), MtpModule(config)
        data = batches(chapters, tokenizer, random.Random(0), batch_tokens=1024)
        recipe = Recipe(learning_rate=2e-3, bias_speed=2e-3, compile=False)
        before = main.model.layers[1].mlp.experts.down_proj.detach().clone()
        train_main(main, data, Budget(0.0, steps=3), recipe)
        assert not torch.equal(before, main.model.layers[1].mlp.experts.down_proj)
        mtp.start_from(main)
        frozen = {name: tensor.clone() for name, tensor in main.state_dict().items()}
        train_mtp(mtp, main, data, Budget(0.0, steps=2), recipe)
        assert all(torch.equal(frozen[name], t) for name, t in main.state_dict().items())
        return main, mtp

    main, mtp = run()
    again, mtp_again = run()
    for one, other in ((main, again), (mtp, mtp_again)):
        for name, tensor in one.state_dict().items():
            assert torch.equal(tensor, other.state_dict()[name]), name

    save_checkpoint(tmp_path / "saved", main, mtp, tokenizer)
    assert not list((tmp_path / "saved").glob("*.partial"))
    loaded = load_mtp(tmp_path / "saved", config).state_dict()
    for name, tensor in mtp.state_dict().items():
        keep = name.endswith("e_score_correction_bias")
        # The file holds bfloat16: exactly the rounded weights come back.
        assert torch.equal(loaded[name], tensor if keep else tensor.bfloat16().float()), name
