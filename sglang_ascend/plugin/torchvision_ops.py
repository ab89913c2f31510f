"""Schemas of torchvision's three C++ operators, for a torchvision built for another torch.

SGLang and transformers import torchvision for image inputs. PyPI's torchvision does not find its
compiled operators beside a CPU build of torch, and its import fails while it registers shape
functions for operators that do not exist. Declaring the schemas is enough for the import; calling
one of the operators then fails with torch's own "no kernel" error.
"""

from __future__ import annotations

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "deform_conv2d": (
        "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, int stride_h,"
        " int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int groups,"
        " int offset_groups, bool use_mask) -> Tensor"
    ),
}
_library = None


def declare_if_missing() -> bool:
    """Declare the schemas unless torchvision's own library does. True when they were declared."""
    global _library
    import importlib.util
    from pathlib import Path

    import torch

    spec = importlib.util.find_spec("torchvision")
    if spec is None or _library is not None or hasattr(torch.ops.torchvision, "nms"):
        return False
    for extension in Path(spec.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(str(extension))
            return False
        except OSError:
            pass  # built for another torch: declare the schemas instead
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in _SCHEMAS.items():
        _library.define(name + schema)
    return True
