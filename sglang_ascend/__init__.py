"""Serving of DeepSeek-class MoE models on Huawei Ascend, on top of unmodified SGLang.

Importing this package has no side effects: SGLang activates it through the entry points of
``pyproject.toml``, and ``python -m sglang_ascend.launch_server`` does so for the user.
"""

__version__ = "0.1.0"
