"""SGLang's frontend language against a running server."""

from __future__ import annotations

import re

import pytest
import sglang as sgl


@pytest.fixture(scope="module", autouse=True)
def backend(smollm2_server):
    endpoint = sgl.RuntimeEndpoint(smollm2_server.url)
    sgl.set_default_backend(endpoint)
    return endpoint


@sgl.function
def complete(s, start):
    s += start
    s += sgl.gen("rest", max_tokens=8, temperature=0)


def test_gen(backend):
    state = complete.run(start="1, 2, 3, 4,")
    assert "5" in state["rest"]


def test_select(backend):
    @sgl.function
    def pick(s):
        s += "The capital of France is"
        s += sgl.select("city", choices=[" Paris", " a banana"])

    assert pick.run()["city"] == " Paris"


def test_fork_and_join(backend):
    @sgl.function
    def tips(s):
        s += "Colours:"
        forks = s.fork(2)
        for number, fork in enumerate(forks):
            fork += f" number {number} is"
            fork += sgl.gen("colour", max_tokens=4, temperature=0)
        forks.join("gather_variable")
        s += " done"

    state = tips.run()
    assert len(state["colour"]) == 2 and all(state["colour"])


def test_regex(backend):
    @sgl.function
    def address(s):
        s += "The address of the machine is "
        s += sgl.gen("ip", regex=r"[0-9]{1,3}(\.[0-9]{1,3}){3}", max_tokens=24, temperature=0)

    assert re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){3}", address.run()["ip"])


def test_chat_roles(backend):
    @sgl.function
    def ask(s, question):
        s += sgl.system("You answer in one short sentence.")
        s += sgl.user(question)
        s += sgl.assistant(sgl.gen("answer", max_tokens=24, temperature=0))

    state = ask.run(question="What is the capital of France?")
    assert "Paris" in state["answer"]


def test_stream_equals_run(backend):
    whole = complete.run(start="The weather today is")["rest"]
    state = complete.run(start="The weather today is", stream=True)
    assert "".join(state.text_iter("rest")) == whole


def test_batch_equals_one_by_one(backend):
    starts = ["1, 2, 3,", "The sky is", "def add(a, b):", "Hello, my name"]
    batch = complete.run_batch([{"start": start} for start in starts], num_threads=4)
    assert [state["rest"] for state in batch] == [complete.run(start=s)["rest"] for s in starts]
