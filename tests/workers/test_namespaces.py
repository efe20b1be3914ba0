"""Two hosts on one machine, and a cut between them: nothing says so but the silence."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workers.compared import contents

ROOT = Path(__file__).parents[2]
SWEEP = ["sweep", "--task", "linear", "--preset", "smoke", "--attn", "ssa", "--seeds", "2", "--threads", "1"]
SWEEP += ["--no-evidence", "--set", "train.steps=1000", "--set", "train.batch=8", "--set", "test.prompts=64"]
SWEEP += ["--set", "model.width=16", "--set", "model.heads=2"]
SWEEP += ["--set", "test.axes.sigma_x=1", "--set", "test.axes.sigma_f=1,2"]
NEAR, FAR, PORT = "10.213.77.1", "10.213.77.2", 7213

# On a host: for each connection a worker, which speaks through it and takes its time.
SERVER = """
import socket, subprocess, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("ready", flush=True)
    while True:
        line, _ = server.accept()
        subprocess.Popen([sys.executable, "-c", sys.argv[3], "work"], stdin=line, stdout=line)
        line.close()
"""
WORKER = """
import time
from icl_lab.cli.main import main
from icl_lab.training import loop
from icl_lab.workers import mirror
loop.CHECKPOINT_SECONDS, mirror.OFTEN, mirror.SHARE = 0.2, 0.2, 0
row = loop.row
loop.row = lambda *words: time.sleep(0.04) or row(*words)
main()
"""
# What leads there: standard input and output over a connection.
HOP = """
import os, socket, sys, threading
line = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def forth():
    while data := os.read(0, 1 << 16):
        line.sendall(data)
    line.shutdown(socket.SHUT_WR)
threading.Thread(target=forth, daemon=True).start()
while data := line.recv(1 << 16):
    os.write(1, data)
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def link():
    """A second network namespace, and the name of the link to it on this side."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("needs root and iproute2")
    space, here, there = (f"{name}{os.getpid()}" for name in ("icl", "ica", "icb"))
    try:
        ip("netns", "add", space)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace here: {error.stderr.decode().strip()}")
    try:
        ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", space)
        ip("addr", "add", f"{NEAR}/30", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", space, "addr", "add", f"{FAR}/30", "dev", there)
        ip("-n", space, "link", "set", there, "up")
        yield space, here
    finally:
        ip("netns", "del", space)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_cut_link_is_noticed_by_the_silence_and_the_run_goes_on_elsewhere(tmp_path, link):
    space, here = link
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    program = [sys.executable, "-m", "icl_lab", *SWEEP]
    subprocess.run([*program, "--results", str(tmp_path / "here")], env=env, check=True, capture_output=True)
    (tmp_path / "hop").write_text(f"#!{sys.executable}\n{HOP}")
    (tmp_path / "hop").chmod(0o755)
    serve = [sys.executable, "-c", SERVER]
    hosts = []
    try:
        for prefix, address in (([], NEAR), (["ip", "netns", "exec", space], FAR)):
            words = [*prefix, *serve, address, str(PORT), WORKER]
            hosts.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True))
            assert hosts[-1].stdout.readline() == "ready\n"
        on = [word for host in (NEAR, FAR) for word in ("--on", f"{tmp_path / 'hop'} {host} {PORT}:1")]
        driver = subprocess.Popen(
            [*program, *on, "--silence", "10", "--results", str(tmp_path / "far")],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        end = time.monotonic() + 120
        while len(list((tmp_path / "far").rglob("checkpoint.pt"))) < 2:
            assert driver.poll() is None, driver.communicate()[1]
            assert time.monotonic() < end, "no checkpoints came"
            time.sleep(0.05)
        ip("link", "set", here, "down")
        with driver:
            _, err = driver.communicate(timeout=200)
        assert driver.returncode == 0, err
    finally:
        for host in hosts:
            host.kill()
            host.wait()
            host.stdout.close()
    assert err.count("lost: ") == 1, err
    assert "nothing was heard for 10 s" in err
    assert contents(tmp_path / "far") == contents(tmp_path / "here")
    # The worker that was cut off heard nothing either, and has left.
    end = time.monotonic() + 30
    while list(tmp_path.glob("icl-lab-*")):
        assert time.monotonic() < end, "the worker beyond the cut goes on"
        time.sleep(0.2)
