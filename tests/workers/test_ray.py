"""A Ray cluster: the runs are those of this machine, also when a node dies in the middle."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workers.compared import contents

pytest.importorskip("ray", reason="Ray is not installed: pip install 'icl_lab[ray]'")

ROOT = Path(__file__).parents[2]
SMALL = ["--set", "train.batch=8", "--set", "test.prompts=64", "--no-evidence", "--threads", "1"]
SMALL += ["--set", "test.axes.sigma_x=1", "--set", "test.axes.sigma_f=1,2"]
SWEEP = ["sweep", "--task", "linear", "--preset", "smoke", "--attn", "ssa", *SMALL]

# A head and one more raylet, started by the test itself; the second has room for a run, the first for the rest.
CLUSTER = """
import sys, time
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(second, allow_graceful=False)
    print("gone", flush=True)
cluster.shutdown()
"""
# The worker keeps and sends checkpoints often, and the training takes long enough to be broken off.
OFTEN = """
import sys, time
if sys.orig_argv[-1] == "work":
    from icl_lab.training import loop
    from icl_lab.workers import mirror
    loop.CHECKPOINT_SECONDS, mirror.OFTEN, mirror.SHARE = 0.2, 0.2, 0
    row = loop.row
    loop.row = lambda *words: time.sleep(0.5) or row(*words)
"""


@pytest.fixture
def env(tmp_path):
    """A token of the test's own, and processes that import this checkout."""
    (tmp_path / "token").write_text("0" * 64)
    (tmp_path / "often").mkdir()
    (tmp_path / "often" / "sitecustomize.py").write_text(OFTEN)
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def sweep(env, results, *words):
    command = [sys.executable, "-m", "icl_lab", *SWEEP, *words, "--results", str(results)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process):
    with process:
        out, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    return err


@pytest.mark.slow
def test_a_cluster_of_its_own(tmp_path, env):
    finished(sweep(env, tmp_path / "here", "--set", "train.steps=100", "--seeds", "2"))
    err = finished(sweep(env, tmp_path / "ray", "--set", "train.steps=100", "--seeds", "2", "--engine", "ray"))
    assert "2 to do, " in err
    assert contents(tmp_path / "ray") == contents(tmp_path / "here")
    assert len(contents(tmp_path / "ray")) == 12


@pytest.mark.slow
def test_a_node_that_is_killed_in_the_middle(tmp_path, env):
    """Two raylets; the second dies while a run on it has sent a checkpoint. The run goes on from that on the first."""
    words = ["--set", "train.steps=1000", "--seeds", "2"]
    finished(sweep(env, tmp_path / "here", *words))
    slow = {**env, "PYTHONPATH": f"{tmp_path / 'often'}:{ROOT}"}
    nodes = [sys.executable, "-c", CLUSTER]
    with subprocess.Popen(nodes, env=slow, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cluster:
        try:
            address = cluster.stdout.readline().strip()
            driver = sweep(env, tmp_path / "ray", *words, "--engine", "ray", "--address", address)
            end = time.monotonic() + 150
            while len(list((tmp_path / "ray").rglob("checkpoint.pt"))) < 2:
                assert driver.poll() is None, driver.communicate()[1]
                assert time.monotonic() < end, "no checkpoints came"
                time.sleep(0.1)
            print("now", file=cluster.stdin, flush=True)
            assert cluster.stdout.readline() == "gone\n"
            err = finished(driver)
        finally:
            cluster.stdin.close()
    assert err.count("lost: ") == 1, err
    assert contents(tmp_path / "ray") == contents(tmp_path / "here")


@pytest.mark.slow
def test_what_cannot_be_had_is_one_clear_line(tmp_path, env):
    driver = sweep(env, tmp_path, "--engine", "ray", "--address", "127.0.0.1:1")
    with driver:
        _, err = driver.communicate(timeout=250)
    assert driver.returncode == 2
    assert err.splitlines()[-1].startswith("icl-lab: --engine ray --address 127.0.0.1:1: ")
    assert "Traceback" not in err
