"""The smallest fair server around ``generate``: static batches, tokens streamed as they come.

The requests that wait when the model is free and have the same shape are one batch; no padding, no
scheduler, no detokenisation. Speaks the part of SGLang's ``/generate`` that the benchmark uses.
"""

from __future__ import annotations

import argparse
import json
import queue
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

from sglang_ascend.plugin import torchvision_ops

#: Requests that start together arrive within this time.
GATHER_S = 0.02


@dataclass(frozen=True)
class Asked:
    """A request; its handler waits for the number of tokens so far in ``events``."""

    prompt: list[int]
    output: int
    events: queue.Queue = field(default_factory=queue.Queue)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.prompt), self.output


class Tokens:
    """A streamer for a batch; ``generate`` hands it the prompts first, then a token a row."""

    def __init__(self, batch: list[Asked]) -> None:
        self._batch = batch
        self._count = -1

    def put(self, value: torch.Tensor) -> None:
        self._count += 1
        if self._count:
            for asked in self._batch:
                asked.events.put(self._count)

    def end(self) -> None:
        for asked in self._batch:
            asked.events.put(None)


def load(folder: str, number_format: str):
    """The model in float32, or with dynamic INT8 in its linear layers."""
    torchvision_ops.declare_if_missing()
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    # No token ends an answer: all answers shall be as long as asked.
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    if number_format == "int8":
        linear = {torch.nn.Linear}
        model = torch.ao.quantization.quantize_dynamic(model, linear, dtype=torch.qint8)
    return model


def serve_batches(model, waiting: queue.Queue, size: int) -> None:
    """Run batch after batch, for ever."""
    kept: list[Asked] = []
    while True:
        if not kept:
            kept.append(waiting.get())
        while len(kept) < size:
            try:
                kept.append(waiting.get(timeout=GATHER_S))
            except queue.Empty:
                break
        batch = [asked for asked in kept if asked.shape == kept[0].shape][:size]
        kept = [asked for asked in kept if asked not in batch]
        ids = torch.tensor([asked.prompt for asked in batch])
        with torch.inference_mode():
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=batch[0].output,
                do_sample=False,
                streamer=Tokens(batch),
            )


def handler(waiting: queue.Queue) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = Asked(body["input_ids"], body["sampling_params"]["max_new_tokens"])
            waiting.put(asked)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            while (count := asked.events.get()) is not None:
                event = json.dumps({"meta_info": {"completion_tokens": count}})
                self.wfile.write(f"data: {event}\n\n".encode())

        def log_message(self, *_) -> None:
            pass

    return Handler


class Server(ThreadingHTTPServer):
    daemon_threads = True
    #: All requests of a batch connect at once.
    request_queue_size = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="checkpoint folder")
    parser.add_argument("--format", choices=("float32", "int8"), default="float32")
    parser.add_argument("--batch", type=int, default=16, help="largest batch")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    model, waiting = load(given.model, given.format), queue.Queue()
    server = Server(("127.0.0.1", given.port), handler(waiting))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    serve_batches(model, waiting, given.batch)


if __name__ == "__main__":
    main()
