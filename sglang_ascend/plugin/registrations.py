"""What SGLang lets a plug-in register without a hook: backends, handlers, choices, forwards."""

from __future__ import annotations

from sglang_ascend.attention.backend_name import ATTENTION_BACKEND
from sglang_ascend.deploy.int8_layers import SCHEME
from sglang_ascend.seam import ProcessKind


def register(kind: ProcessKind) -> None:
    """Register for the process that parses flags, and for the ones that run the model."""
    from sglang.srt.arg_groups import choices

    for options in (choices.ATTENTION_BACKEND_CHOICES, choices.DRAFT_ATTENTION_BACKEND_CHOICES):
        if ATTENTION_BACKEND not in options:
            options.append(ATTENTION_BACKEND)
    _register_quantization(choices)
    if kind == "scheduler":
        from sglang_ascend.plugin import fused_forwards

        fused_forwards.register()
        _register_attention()


def _register_quantization(choices) -> None:
    from sglang.srt.layers.quantization import QUANTIZATION_METHODS

    from sglang_ascend.quantization.config import AscendW8A8Config

    if SCHEME not in choices.QUANTIZATION_CHOICES:
        choices.add_quantization_method_choices([SCHEME])
    QUANTIZATION_METHODS[SCHEME] = AscendW8A8Config


def _register_attention() -> None:
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    from sglang.srt.models.deepseek_common.attention_backend_handler import (
        AttentionBackendRegistry,
    )
    from sglang.srt.models.deepseek_common.utils import FORWARD_ABSORB_CORE_ATTENTION_BACKENDS

    from sglang_ascend.attention.backend import PagedAttentionBackend
    from sglang_ascend.attention.mla_method import choose_method

    register_attention_backend(ATTENTION_BACKEND)(PagedAttentionBackend)
    AttentionBackendRegistry.register(ATTENTION_BACKEND, choose_method)
    # Latent and rope parts arrive separately, as the NPU's attention operators take them.
    FORWARD_ABSORB_CORE_ATTENTION_BACKENDS.append(ATTENTION_BACKEND)
