#!/usr/bin/env bash
# Serves a model on port 30000, setting everything up first.
#
#   ./launch/serve.sh                                   the embedded SmolLM2-135M-Instruct
#   ./launch/serve.sh --model-path tiny-deepseek-v3     the embedded DeepSeek-V3 architecture
#   ./launch/serve.sh --help                            all flags
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
bash -- "$root/launch/setup.sh"
exec "${SGLANG_ASCEND_VENV:-$root/.venv}/bin/python" -m sglang_ascend.launch_server "$@"
