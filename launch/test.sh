#!/usr/bin/env bash
# Runs all tests, or those that pytest's arguments choose, setting everything up first.
#
#   ./launch/test.sh
#   ./launch/test.sh tests/ops -k rope       paths are relative to the repository
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
SGLANG_ASCEND_EXTRAS="${SGLANG_ASCEND_EXTRAS:-} dev contract kernels" SGLANG_ASCEND_APT=1 \
    bash -- "$root/launch/setup.sh"
cd -- "$root"
exec "${SGLANG_ASCEND_VENV:-$root/.venv}/bin/python" -m pytest "$@"
