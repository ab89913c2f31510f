"""SGLang's ``is_npu()`` answers False on our npu platform.

With True, SGLang's own NPU code takes over all along the way (pools, MLA forward methods, MoE
runners, backends chosen by name) and asks for sgl_kernel_npu at import. Without it, ``npu`` is an
out-of-tree device like ``reference`` and both run the same code above the operator boundary.

``is_npu`` is defined further down in the module that is being imported when the platform is
activated, and other modules keep its answer at their import. A data descriptor on the module's
class is found before the module's own attribute, whenever that gets defined. Code inside the module
itself still sees the original, which is right: there it asks torch.npu for memory figures.
"""

from __future__ import annotations

import sys
from types import ModuleType

_MODULE = "sglang.srt.utils.common"


def not_npu() -> bool:
    """What everybody outside ``sglang.srt.utils.common`` gets for ``is_npu``."""
    return False


class _CommonUtils(ModuleType):
    @property
    def is_npu(self):
        return not_npu


def hide_npu() -> None:
    """Install the descriptor; called while the module is still being imported."""
    sys.modules[_MODULE].__class__ = _CommonUtils
