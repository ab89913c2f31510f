"""Proof of the Triton-Ascend kernels on a CPU: what can be shown about them without a chip.

- `frontend` lowers a kernel to linalg, as triton-ascend does, and `lint` refuses what would make
  the checks below say yes without reason;
- `hivm` takes that through Huawei's compiler up to HIVM and reads the planned use of on-chip
  memory; `memory_table` keeps the results, from which launchers pick;
- `native` compiles the same linalg for the host and runs it; `interpreter` runs a kernel in
  Triton's interpreter where native lowering lacks an operator;
- `comparison` and `tolerances` say how close is close enough, `roofline` and `page` what to expect
  of the chip.

"HIVM-checked" does not mean that a kernel runs on Ascend: the last compiler stage, `hivmc`, is
part of CANN, and nothing here executes on an NPU.
"""
