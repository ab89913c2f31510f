"""The operator boundary: every computation that has an NPU operator, and its executable definition.

Nothing is imported here; `load_all` imports the operator modules when asked. An operator is one
file `ops/<name>.py` with

- `SPEC`: named axes and dtypes of its arguments and results, what it writes in place, the torch_npu
  operators that it calls and their limits, and a tolerance with its reason (`spec.py`);
- `reference(...)`: plain torch, batched, the definition that every device has to agree with;
- `npu(...)`: the same parameters, the torch_npu call; it checks the limits of the NPU first;
- `CONTRACT`: shapes of real models at which `npu` is checked without a chip;
- `<name> = Operator(SPEC, reference, npu, CONTRACT)`, which is what the rooms above call.

A collective operator takes its group of ranks as an argument (`expert_parallel.py`).

SGLANG_ASCEND_CHECK_OPS=1 checks the arguments and results of every call against `SPEC`;
record=FOLDER also writes down what each operator was called with (`call_shapes.py`).
"""

OPERATOR_MODULES = (
    "add_rms_norm",
    "add_rms_norm_quant",
    "dispatch_pack",
    "dispatch_unpack",
    "dynamic_quant",
    "gate_topk_grouped_sigmoid",
    "gate_topk_softmax",
    "grouped_matmul",
    "kv_rmsnorm_rope_write",
    "kv_write",
    "mla_kv_write",
    "mla_prefill_expanded",
    "mla_prolog",
    "moe_distribute_combine",
    "moe_distribute_dispatch",
    "moe_permute",
    "moe_unpermute",
    "murmur_hash32",
    "paged_gqa_attention",
    "paged_mla_attention",
    "quant_grouped_matmul",
    "quant_matmul",
    "rms_norm",
    "rms_norm_quant",
    "rope",
    "sample",
    "sampling_filter",
    "swiglu",
    "swiglu_quant",
)


def load_all():
    """Import every operator module; return the operators by name."""
    from importlib import import_module

    return {name: getattr(import_module(f"{__name__}.{name}"), name) for name in OPERATOR_MODULES}
