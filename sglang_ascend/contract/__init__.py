"""Check of every NPU call against the real torch_npu, on a machine without an NPU.

torch_npu's own schemas and shape functions judge the calls; README.md says what that shows and what
it does not.
"""
