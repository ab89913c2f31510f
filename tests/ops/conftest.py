"""transformers' model classes import torchvision, which needs its operator schemas declared."""

from sglang_ascend.plugin import torchvision_ops

torchvision_ops.declare_if_missing()
