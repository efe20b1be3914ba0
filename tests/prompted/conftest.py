"""A server on loopback that answers as it is told to, and a tiny model with a tokenizer of its own."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from icl_lab.prompted import asking
from tests.byte_tokens import write_tokenizer

KEY = "sk-secret-0123456789abcdef"


def completion(said, model="stub", finish="stop", usage=(150, 2), kind="message"):
    """The body of a whole answer."""
    choice = {"message": {"role": "assistant", "content": said}} if kind == "message" else {"text": said}
    told = {"id": "x", "object": "chat.completion", "model": model, "choices": [choice | {"finish_reason": finish}]}
    if usage:
        told["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return json.dumps(told).encode()


class Blocking:
    """An endpoint whose answers are waited for."""

    def __init__(self, engine, runner):
        self._engine, self._runner = engine, runner
        self.most_tokens = engine.most_tokens

    def ask(self, *words):
        return self._runner.run(self._engine.ask(*words))

    def close(self):
        self._runner.run(self._engine.close())


@pytest.fixture
def blocking():
    """Makes the calls of endpoints wait; all of them in one event loop, to which connections belong."""
    with asyncio.Runner() as runner:
        made = []
        yield lambda engine: made.append(Blocking(engine, runner)) or made[-1]
        for each in made:
            each.close()


class Stub:
    """``script`` holds what to do with each request in turn, then ``usual`` with all others.

    A step takes the parsed request and returns (status, headers, body), or a function of the handler that does more.
    """

    def __init__(self):
        self.script, self.requests, self.keys, self.paths = [], [], [], []
        self.usual = lambda body: self.say("True")
        self._guard = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with stub._guard:
                    stub.requests.append(body)
                    stub.keys.append(self.headers.get("Authorization"))
                    stub.paths.append(self.path)
                    step = stub.script.pop(0) if stub.script else stub.usual
                made = step(body)
                if callable(made):
                    made(self)
                    return
                status, headers, content = made
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def say(self, said, **how):
        """A step's result: an answer."""
        return 200, {"Content-Type": "application/json"}, completion(said, **how)

    def fail(self, status, headers=None, message="no"):
        """A step: an error of the server."""
        told = json.dumps({"error": {"message": message}}).encode()
        return lambda body: (status, {"Content-Type": "application/json"} | (headers or {}), told)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def stub(monkeypatch):
    pytest.importorskip("openai", reason="openai is not installed")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr(asking, "POLL", 0.01)
    server = Stub()
    yield server
    server.close()


@pytest.fixture
def ask(run, stub, monkeypatch, tmp_path, quick_pictures):
    """Runs ``icl-lab prompted`` against the stub with a small grid, and returns (code, stdout, stderr)."""
    monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def call(*words, task="every", results=tmp_path / "results"):
        small = ["--task", task, "--model", "stub", "--preset", "smoke", "--prompts", "4", "--shots", "10"]
        return run("prompted", *small, *words, "--results", str(results))

    return call


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    """A folder with a random GPT-2 of 400 places whose tokens are bytes, and a few pairs of them."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("tiny-gpt2")
    config = transformers.GPT2Config(
        vocab_size=288, n_embd=32, n_layer=2, n_head=4, n_positions=700, eos_token_id=287, bos_token_id=287
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    write_tokenizer(folder, "Input: 0.12 Output: True Output: False\n")
    return folder
