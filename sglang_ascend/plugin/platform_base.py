"""What both devices tell SGLang: the platform class without anything device-specific.

SGLang builds the platform while ``sglang.srt.utils.common`` is half imported, so nothing here may
import SGLang's utils or layers at module level.
"""

from __future__ import annotations

from sglang.srt.platforms.interface import PlatformCapabilities, PlatformEnum, SRTPlatform

from sglang_ascend.attention.backend_name import ATTENTION_BACKEND


class AscendPlatformBase(SRTPlatform):
    """SGLang's out-of-tree platform, common to ``npu`` and ``reference``."""

    _enum = PlatformEnum.OOT
    capabilities = PlatformCapabilities()
    supported_quantization: list[str] = []

    def apply_server_args_defaults(self, server_args) -> None:
        from sglang_ascend.plugin.server_defaults import apply_defaults

        apply_defaults(server_args, self.device_name)

    def get_default_attention_backend(self) -> str:
        return ATTENTION_BACKEND

    def get_kv_pool_cls(self, *, kind: str) -> type | None:
        if kind == "mla":
            from sglang_ascend.attention.mla_pool import SplitMlaPool

            return SplitMlaPool
        if kind == "mha":
            from sglang_ascend.attention.gqa_pool import OnDemandGqaPool

            return OnDemandGqaPool
        return None

    def post_load_model(self, model) -> None:
        from sglang_ascend.moe import start

        start.start(model)
        if self.device_name == "reference":
            from sglang_ascend.plugin import decode_replay, host_settings

            host_settings.settle()
            decode_replay.install(model)

    def get_compile_backend(self, mode: str | None = None) -> str:
        # Inductor would compile the top-k of the MoE gate through Triton.
        return "eager"

    def get_dispatch_key_name(self) -> str:
        return "native"
