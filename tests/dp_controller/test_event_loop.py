"""The controller's loop hands on every message in order, and sleeps while there is none."""

from __future__ import annotations

import threading
import time

import zmq

from sglang_ascend.dp_controller import hooks


class Controller:
    """The three things that the loop uses, over a real socket."""

    def __init__(self, context):
        self.recv_from_tokenizer = context.socket(zmq.PULL)
        self.port = self.recv_from_tokenizer.bind_to_random_port("tcp://127.0.0.1")
        self.soft_watchdog = self
        self.fed, self.got, self.done = 0, [], threading.Event()

    def feed(self):
        self.fed += 1

    def _request_dispatcher(self, message):
        self.got.append(message)
        if message == "end":
            raise SystemExit

    def run(self):
        try:
            hooks.event_loop(self)
        except SystemExit:
            self.done.set()


def test_messages_keep_their_order_and_idling_costs_nothing():
    context = zmq.Context()
    controller = Controller(context)
    thread = threading.Thread(target=controller.run, daemon=True)
    thread.start()
    sender = context.socket(zmq.PUSH)
    sender.connect(f"tcp://127.0.0.1:{controller.port}")
    wanted = [*range(500), "end"]
    time.sleep(1)
    for message in wanted:
        sender.send_pyobj(message)
    assert controller.done.wait(30)
    assert controller.got == wanted
    # Ten wake-ups in the idle second, to feed the watchdog; a spinning loop makes a million.
    assert controller.fed < len(wanted) + 1000
    thread.join(10)
    context.destroy(linger=0)
