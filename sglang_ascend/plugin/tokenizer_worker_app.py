"""The HTTP application as uvicorn's tokenizer workers import it.

SGLang loads plugins in every process except these workers (``init_multi_tokenizer`` does not), and
lets the import path of the application be set: ``SGLANG_HTTP_SERVER_APP_PATH``.
"""

from sglang.srt.plugins import load_plugins

load_plugins()

from sglang.srt.entrypoints.http_server import app  # noqa: E402, F401
