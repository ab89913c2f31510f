"""``python -m sglang_ascend.doctor``: versions, devices, and the status of every seam on SGLang."""

import argparse
import sys

from sglang_ascend.plugin import doctor

if __name__ == "__main__":
    argparse.ArgumentParser(
        prog="python -m sglang_ascend.doctor",
        description="Print versions, devices and the status of every seam on SGLang, each looked "
        "up in a fresh process of the kind that needs it. Exit code 1 when something FAILED.",
    ).parse_args()
    sys.exit(doctor.main())
