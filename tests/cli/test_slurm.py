"""The script of a job array: sweep's options as they were given, and a shell that passes signals on."""

import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

WORDS = ["sweep-slurm", "--task", "linear", "--attn", "ssmax:s=swap", "--attn", "ssa", "--seeds", "4", "--swap", "ssa"]


@pytest.fixture
def script(tmp_path, monkeypatch, run):
    """Writes the script with these words; returns its lines."""
    monkeypatch.chdir(tmp_path)

    def write(*words):
        code, out, err = run(*WORDS, *words)
        assert code == 0, err
        assert "next: sbatch sweep.sbatch" in out
        assert "16 runs in 3 tasks of at most 30 min each" in out
        return (tmp_path / "sweep.sbatch").read_text().splitlines()

    return write


def test_the_options_of_sweep_stand_in_the_script(script, tmp_path):
    lines = script("--array", "3", "--minutes", "30", "--set", "train.steps=5", "--threads", "2", "--force")
    (line,) = (line for line in lines if " sweep " in line)
    words = shlex.split(line.removesuffix("&"))
    assert words[:4] == [sys.executable, "-m", "icl_lab", "sweep"]
    given = ["--task", "linear", "--attn", "ssmax:s=swap", "--attn", "ssa", "--seeds", "4", "--swap", "ssa"]
    given += ["--set", "train.steps=5", "--threads", "2", "--force"]
    taken = words[4:-2]
    for option in {word for word in given if word.startswith("--")}:
        values = [taken[at + 1] for at, word in enumerate(taken) if word == option and option != "--force"]
        assert values == [given[at + 1] for at, word in enumerate(given) if word == option and option != "--force"]
    assert len(taken) == len(given)
    assert words[-2:] == ["--shard", "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"]
    assert {"#SBATCH --array=0-2", "#SBATCH --time=30", "#SBATCH --requeue", "#SBATCH --signal=B:USR1@120"} <= {*lines}
    assert f"cd {shlex.quote(str(tmp_path))} || exit 1" in lines
    assert (tmp_path / "slurm-logs").is_dir()


def test_a_script_to_a_device_leaves_it_a_device(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*WORDS, "--file", "/dev/null")
    assert code == 0, err
    assert (tmp_path / "slurm-logs").is_dir()
    assert not Path("/dev/slurm-logs").exists()
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_lines_for_sbatch_stand_before_the_first_command(script):
    lines = script("--array", "3", "--minutes", "30", "--sbatch=--gres=gpu:1", "--sbatch", "--mem=4G")
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    assert {"#SBATCH --gres=gpu:1", "#SBATCH --mem=4G"} <= {*lines[:first]}


def test_what_is_the_arrays_own_is_no_option(run):
    code, _, err = run(*WORDS, "--shard", "1/2")
    assert code == 2
    assert "No such option '--shard'" in err or "No such option: --shard" in err  # as click 8.4 or 8.1 says it
    code, _, err = run(*WORDS, "--minutes", "1", "--before", "90")
    assert (code, err) == (2, "icl-lab: --before 90 s leaves nothing of the 1 minutes of a task.\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--attn", "nope"], "nope"),
        (["--attn", "$(touch hacked)"], "$(touch hacked)"),
        (["--attn", "ssa:x=1"], "x"),
        (["--set", "spec=1"], "spec"),
        (["--set", "train.steps=many"], "train.steps"),
        (["--task", "nope"], "nope"),
        (["--preset", "nope"], "nope"),
        (["--swap", "nope"], "nope"),
        (["--device", "gpu"], "There is no device 'gpu' here"),
        (["--stack", "--jobs", "2"], "choose one"),
        (["--sbatch", "--mem=4G\ntouch hacked"], "no text of one line"),
    ],
)
@pytest.mark.slow
def test_a_failing_sweep_is_refused_before_a_script(run, tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*WORDS, *words)
    assert (code, out) == (2, "")
    assert complaint in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_a_gpu_that_only_nodes_have_is_no_fault(script):
    lines = script("--array", "3", "--minutes", "30", "--device", "cuda")
    assert any("--device cuda" in line for line in lines)


def test_words_and_folders_are_quoted(tmp_path, run, monkeypatch):
    folder = tmp_path / "$(touch hacked) ; '\""
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert run(*WORDS, "--results", "$(touch hacked)")[0] == 0
    lines = (folder / "sweep.sbatch").read_text().splitlines()
    (command,) = (line for line in lines if " sweep " in line)
    assert "$(touch hacked)" in shlex.split(command)
    assert shlex.split(next(line for line in lines if line.startswith("cd ")))[1] == str(folder)
    assert shlex.split(next(line for line in lines if "--output" in line)[len("#SBATCH ") :])  # balanced
    echo = [line.replace(sys.executable, "echo") for line in lines]
    env = {"PATH": os.environ["PATH"], "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "4"}
    ended = subprocess.run(["bash", "-c", "\n".join(echo)], env=env, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "--results $(touch hacked)" in ended.stdout
    assert not list(tmp_path.rglob("hacked"))


@pytest.mark.slow
def test_a_signal_reaches_the_run_and_the_task_is_queued_again(script, tmp_path, monkeypatch):
    """With a stand-in for the run, which leaves with 75 a while after it was asked to."""
    lines = script("--array", "3", "--minutes", "30")
    work = "trap 'sleep 0.3; exit 75' USR1; touch ready; while true; do sleep 0.05; done"
    lines = [f"bash -c {shlex.quote(work)} &" if " sweep " in line else line for line in lines]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "scontrol").write_text('#!/bin/sh\necho "$@" > queued\n')
    (tmp_path / "bin" / "scontrol").chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    with subprocess.Popen(["bash", "-c", "\n".join(lines)], env=env | {"SLURM_ARRAY_TASK_COUNT": "3"}) as task:
        end = time.monotonic() + 60
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        task.send_signal(signal.SIGUSR1)
    assert task.returncode == 75
    assert (tmp_path / "queued").read_text() == "requeue 7_2\n"


@pytest.mark.parametrize(("restarts", "again"), [("", True), ("0", True), ("2", True), ("3", False), ("50", False)])
def test_a_task_is_not_queued_again_for_ever(script, tmp_path, restarts, again):
    lines = script("--array", "3", "--minutes", "30", "--requeues", "3")
    assert any("3 times at most" in line for line in lines if line.startswith("#"))
    lines = ["bash -c 'exit 75' &" if " sweep " in line else line for line in lines]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "scontrol").write_text('#!/bin/sh\necho "$@" > queued\n')
    (tmp_path / "bin" / "scontrol").chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    env |= {"SLURM_ARRAY_TASK_COUNT": "3"} | ({"SLURM_RESTART_COUNT": restarts} if restarts else {})
    ended = subprocess.run(["bash", "-c", "\n".join(lines)], env=env, capture_output=True, text=True)
    assert ended.returncode == 75
    assert (tmp_path / "queued").exists() == again
    assert ("not queued again: it was 3 times" in ended.stderr) != again


def test_nothing_is_trained(script, tmp_path):
    script("--array", "3", "--minutes", "30", "--results", "mine")
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.sbatch", "slurm-logs"}
