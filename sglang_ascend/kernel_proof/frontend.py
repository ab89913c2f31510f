"""Triton source -> Triton IR -> linalg, by the stages of triton-ascend itself."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache

from sglang_ascend.errors import ConfigError
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec
from sglang_ascend.kernels.versions import TRITON, require_installed

# The chip does not change these stages; the name only selects the backend.
_ARCHITECTURE = "Ascend910_9392"
_MIX_MODE = re.compile(r', mix_mode = "([^"]*)"')


@dataclass(frozen=True)
class Lowered:
    """A kernel under one configuration.

    ttir: Triton IR after its optimisations. linalg: what triton-ascend hands to the NPU compiler.
    mix_mode: "aiv" (vector cores), "aic" (cube cores) or "mix" (both).
    """

    name: str
    ttir: str
    linalg: str
    mix_mode: str


def lower(spec: KernelSpec, config: KernelConfig) -> Lowered:
    """Lower a kernel; ConfigError carries the compiler's words where it refuses."""
    return _lower(spec.name, config.name, _Source(spec, config))


class _Source:
    """Kernel and configuration as an argument of the cached function, equal by name."""

    def __init__(self, spec: KernelSpec, config: KernelConfig):
        self.spec, self.config = spec, config

    def __hash__(self):
        return hash((id(self.spec), self.config.name))

    def __eq__(self, other):
        return self.spec is other.spec and self.config is other.config


@cache
def _lower(kernel: str, config_name: str, source: _Source) -> Lowered:
    require_installed(TRITON)
    import triton.backends.ascend.compiler  # noqa: F401  registers the backend
    from triton._C.libtriton import ir
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    spec, config = source.spec, source.config
    target = GPUTarget("npu", _ARCHITECTURE, 0)
    backend = backends["ascend"].compiler(target)
    options = backend.parse_options(dict(config.options))
    stages: dict = {}
    backend.add_stages(stages, options)
    metadata = {"hash": kernel, "target": target, **options.__dict__}
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        module = ASTSource(spec.kernel, spec.types(config), dict(config.constexprs)).make_ir(
            options, backend.get_codegen_implementation(), backend.get_module_map(), context
        )
        module = stages["ttir"](module, metadata)
        ttir = str(module)
        linalg = stages["ttadapter"](module, metadata)
    except subprocess.CalledProcessError as error:
        words = (error.stderr or b"").decode(errors="replace").strip()
        raise ConfigError(f"{kernel}/{config_name}: triton-ascend refuses it: {words}") from error
    mix_mode = _MIX_MODE.search(linalg)
    if mix_mode is None:
        raise ConfigError(f"{kernel}/{config_name}: triton-ascend gave no mix_mode; {linalg[:200]}")
    # triton-ascend takes the attribute out before it calls the compiler, too.
    return Lowered(spec.kernel.__name__, ttir, _MIX_MODE.sub("", linalg), mix_mode[1])
