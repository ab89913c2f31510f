"""A Triton driver for hosts without an NPU: importing kernels works, launching one is refused.

triton-ascend asks the active driver for a benchmarker when an autotuned kernel is *decorated*, so
SGLang's modules cannot be imported without an active driver. Nothing on the reference device may
launch a Triton kernel; the error below names the kernel's way in instead of crashing in a compiler.
"""

from __future__ import annotations


class KernelLaunchRefused(RuntimeError):
    """A Triton kernel was launched on the reference device."""


def install() -> None:
    """Make the refusing driver active, once per process."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    class HostDriver(DriverBase):
        @classmethod
        def is_active(cls) -> bool:
            return True

        def get_current_target(self) -> GPUTarget:
            # Not "npu": the autotuner would look up a real chip. SGLang reads torch.<name>.
            return GPUTarget("cpu", "none", 0)

        def get_benchmarker(self):
            return self._refuse

        def get_current_device(self):
            self._refuse()

        @staticmethod
        def _refuse(*args, **kwargs):
            raise KernelLaunchRefused(
                "a Triton kernel was launched on --device reference, which runs no Triton kernels; "
                "please report which request did it, with the traceback"
            )

    triton.runtime.driver.set_active(HostDriver())
