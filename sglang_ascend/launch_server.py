"""``python -m sglang_ascend.launch_server``: SGLang's server on an Ascend NPU or a laptop's CPU.

SGLang's own flags all apply. Ours: ``--device`` chooses npu or reference, and ``--model-path``
takes the name of an embedded model and defaults to one.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys

from sglang_ascend.deploy import own_flags, upstream_errors
from sglang_ascend.errors import ConfigError
from sglang_ascend.plugin import host_settings, start_times

_DESCRIPTION = """\
Serve a model through SGLang's OpenAI-compatible API on an Ascend NPU (--device npu) or on the CPU
reference device (--device reference), which gives the same tokens. All flags of SGLang's own
launch_server apply as well and are listed below.
"""
_EXAMPLES = """\
examples:
  python -m sglang_ascend.launch_server
      talk to the embedded SmolLM2-135M-Instruct on port 30000
  python -m sglang_ascend.launch_server --model-path tiny-deepseek-v3
      a small model with DeepSeek-V3's whole architecture
  python -m sglang_ascend.launch_server --device npu --model-path /models/DeepSeek-V3 --tp-size 16
      a real one on Ascend
"""


def parse_own_flags(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Split our flags from SGLang's; the second list goes to SGLang unchanged.

    Raises:
        ConfigError: a flag of ours lacks its value.
    """
    parser = argparse.ArgumentParser(
        prog="python -m sglang_ascend.launch_server",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--device",
        default=os.environ.get("SGLANG_ASCEND_DEVICE", "auto"),
        metavar="{auto,npu,reference}",
        help="auto takes npu where torch_npu and CANN are usable, else reference (default: auto)",
    )
    parser.add_argument(
        "--model-path",
        "--model",
        default=None,
        metavar="NAME_OR_FOLDER",
        help="an embedded model (smollm2-135m-instruct, tiny-deepseek-v3) or a local checkpoint "
        "folder (default: smollm2-135m-instruct)",
    )
    own_flags.add_to(parser)
    parser.add_argument("-h", "--help", action="store_true", help="show this help and exit")
    with upstream_errors.as_config_errors():
        own, rest = parser.parse_known_args(argv)
    if own.help:
        parser.print_help()
        print("\nSGLang's flags:\n")
    return own, rest


def main(argv: list[str] | None = None) -> int:
    """Run the server until it is told to stop.

    Returns:
        0 after an orderly stop, 2 where something asked for cannot be honoured (one line on
        stderr says what and what to do), or SGLang's own exit code.
    """
    host_settings.publish()
    # Importing makes a million objects and hardly any garbage.
    gc.disable()
    start_times.mark("set-up")
    try:
        own, rest = parse_own_flags(sys.argv[1:] if argv is None else argv)
        server_args = _resolve(own, rest)
    except ConfigError as error:
        return _refuse(error)
    finally:
        # Forks share what is frozen; a collection would write to every object and copy its page.
        gc.freeze()
        gc.enable()
    _serve(server_args)
    return 0


def _resolve(own: argparse.Namespace, rest: list[str]):
    from sglang_ascend.deploy import dependencies
    from sglang_ascend.dp_controller import flag as dp_policy
    from sglang_ascend.plugin import cpu_share, device_choice, served_model, versions

    dependencies.check()
    versions.check_sglang()
    choice = device_choice.choose(own.device)
    device_choice.publish(choice)
    values = own_flags.given(own)
    print(f"sglang_ascend: device {choice.device} ({choice.reason})", file=sys.stderr, flush=True)
    os.environ.setdefault(
        "SGLANG_HTTP_SERVER_APP_PATH", "sglang_ascend.plugin.tokenizer_worker_app:app"
    )
    # After a rank has failed, SGLang would wait a minute for a core dump of CUDA.
    os.environ.setdefault("SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS", "0")

    if own.help:
        rest = [*rest, "--help"]
    model = _model_flags(own.model_path, skip=own.help)

    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args

    load_plugins()
    start_times.mark("imports")
    with upstream_errors.as_config_errors():
        server_args = prepare_server_args([*model, *rest])
        values[dp_policy.ENV] = dp_policy.resolve(
            values[dp_policy.ENV], server_args.load_balance_method
        )
        own_flags.publish(values)
        _preflight(server_args, choice.device)
        if choice.device == "reference":
            cpu_share.publish(_ranks_per_node(server_args))
        served_model.publish(server_args.model_path)
        server_args.resolve_once()
        upstream_errors.check_resolved(server_args)
    return server_args


def _model_flags(name_or_path: str | None, skip: bool) -> list[str]:
    from sglang_ascend.models import catalog

    if skip:
        return ["--model-path", catalog.DEFAULT_MODEL]
    name = name_or_path or catalog.DEFAULT_MODEL
    return ["--model-path", str(catalog.resolve(name)), "--served-model-name", name]


def _ranks_per_node(server_args) -> int:
    replicas = 1 if server_args.enable_dp_attention else server_args.dp_size
    return max(1, replicas * server_args.tp_size * server_args.pp_size // server_args.nnodes)


def _preflight(server_args, device: str) -> None:
    from sglang.srt.arg_groups.arg_utils import field_names

    from sglang_ascend.deploy import preflight

    names = field_names(type(server_args))
    preflight.run({name: getattr(server_args, name) for name in names}, device)


def _serve(server_args) -> None:
    from sglang.launch_server import run_server
    from sglang.srt.utils import kill_process_tree

    start_times.mark("flags")
    try:
        run_server(server_args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


def _refuse(error: ConfigError) -> int:
    print("error: " + " ".join(str(error).split()), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
