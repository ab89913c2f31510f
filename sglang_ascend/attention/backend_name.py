"""The name under which SGLang knows our attention backend.

Not "ascend": SGLang picks its own NPU pools and code paths by that name.
"""

ATTENTION_BACKEND = "ascend_paged"
