"""A byte-level BPE tokenizer with a chat template in DeepSeek's form."""

from __future__ import annotations

from collections.abc import Iterable

BOS, EOS, USER, ASSISTANT = "<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>"
SPECIAL = (BOS, EOS, USER, ASSISTANT)  # ids 0 to 3

# As DeepSeek-V3's: the system text follows bos without a marker, and eos ends each answer. A
# tool's result is shown as a user turn, because the model knows no third speaker.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{%- for message in messages %}"
    "{%- if message['role'] == 'system' %}{{ message['content'] }}"
    "{%- elif message['role'] in ['user', 'tool'] %}{{ '<|user|>' + message['content'] }}"
    "{%- elif message['role'] == 'assistant' %}"
    "{{ '<|assistant|>' + (message['content'] or '') + eos_token }}"
    "{%- else %}{{ raise_exception('unknown role ' + message['role']) }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|assistant|>' }}{%- endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int, max_length: int):
    """Train on ``texts``; returns a transformers fast tokenizer with all 256 bytes in it.

    Plain encoding puts bos in front, as DeepSeek's tokenizer does; the chat template writes bos
    itself. Digits are tokens of their own, so that every verse reference is made of known parts.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    bpe.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{BOS} $A",
                pair=f"{BOS} $A {BOS} $B",
                special_tokens=[(BOS, bpe.token_to_id(BOS))],
            ),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
        additional_special_tokens=[USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
        chat_template=CHAT_TEMPLATE,
    )
