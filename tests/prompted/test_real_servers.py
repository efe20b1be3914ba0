"""A server that is not ours, where it is installed: the plumbing only, no answer is looked at."""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<bot>"
ALL_HERE = all(
    importlib.util.find_spec(name) for name in ("openai", "fastapi", "uvicorn", "accelerate", "transformers")
)
SMALL = ["--preset", "smoke", "--prompts", "2", "--shots", "10", "--set", "test.axes.sigma=1"]


@pytest.fixture
def served(gpt2, tmp_path):
    """The address of ``transformers serve`` with a tiny random assistant, and the model's name there."""
    folder = tmp_path / "assistant"
    shutil.copytree(gpt2, folder)
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "~", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("transformers")
    log = (tmp_path / "serve.log").open("wb")
    words = [program, "serve", folder, "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen([*map(str, words)], stdout=log, stderr=log, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    try:
        until = time.monotonic() + 200
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                    break
            except OSError:
                assert server.poll() is None, (tmp_path / "serve.log").read_text()[-2000:]
                assert time.monotonic() < until
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1", str(folder)
    finally:
        server.terminate()
        server.wait(60)
        log.close()


@pytest.mark.exhaustive
@pytest.mark.skipif(not ALL_HERE, reason="openai, fastapi, uvicorn or accelerate is not installed")
def test_transformers_serve_is_asked_and_its_answers_are_counted(run, served, tmp_path, quick_pictures):
    url, model = served
    words = ["prompted", "--task", "every", "--model", model, "--base-url", url, *SMALL, "--parallel", "1"]
    code, said, complaint = run(*words, "--results", str(tmp_path / "results"))
    assert code == 0, complaint
    assert "2 answers: 1 cell, " in said
    assert "the server answers as" in complaint  # it adds a revision to the name
    (record,) = (tmp_path / "results" / "prompted").glob("*.jsonl")
    lines = [json.loads(line) for line in record.read_text().splitlines()][1:]
    assert len(lines) == 2
    assert all(line["read"] > 20 and line["model"].startswith(model) for line in lines)
