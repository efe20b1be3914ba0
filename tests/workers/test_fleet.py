"""Where runs are executed, in words: hosts, commands, clusters."""

import sys

import pytest

from icl_lab.cli.launch import Order
from icl_lab.errors import BadValue
from icl_lab.workers import fleet
from icl_lab.workers.fleet import Fleet, read, share


@pytest.fixture
def ssh(monkeypatch):
    """Every program is there."""
    monkeypatch.setattr(fleet.shutil, "which", lambda name: f"/usr/bin/{name}")


@pytest.mark.usefixtures("ssh")
def test_hosts_and_commands_are_read():
    places = read(["gpu1:4,ann@gpu2", "srun -N1 -n1:3", "kubectl exec -i pod --"], "cd lab && .venv/bin/icl-lab")
    assert [(place.name, place.at_once, place.queues) for place in places] == [
        ("gpu1", 4, False),
        ("ann@gpu2", 1, False),
        ("srun -N1 -n1", 3, True),
        ("kubectl exec -i pod --", 1, True),
    ]
    assert share(places) == 9
    assert all(place.remote for place in places)
    # A shell there reads what ssh is given; a command gets words.
    assert places[0].command[-2:] == ("gpu1", "cd lab && .venv/bin/icl-lab work")
    assert places[2].command == ("srun", "-N1", "-n1", "cd", "lab", "&&", ".venv/bin/icl-lab", "work")


@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["gpu1:0"], "no place such as gpu1:4"),
        (["gpu1:2000"], "1 to 1024 runs at once"),
        (["gpu1,,gpu2"], "no place"),
        ([""], "no place"),
        (["gpu1:2,gpu1"], "names 'gpu1' twice"),
        (["-oProxyCommand=x"], "is no host"),
        (["srun 'a"], "No closing quotation"),
    ],
)
def test_what_is_no_place_is_refused(texts, complaint):
    with pytest.raises(BadValue, match=complaint):
        read(texts)


def test_a_program_that_is_not_here_is_said():
    with pytest.raises(BadValue, match="there is no program 'no-such-program' here"):
        read(["no-such-program -N1:2"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"on": ("gpu1",), "engine": "ray"}, "choose one"),
        ({"address": "auto"}, "add --engine ray"),
        ({"gpus_per_run": 0.5}, "add --engine ray"),
        ({"remote_command": "x"}, "add --on"),
    ],
)
def test_options_that_do_not_go_together(words, complaint):
    with pytest.raises(BadValue, match=complaint):
        Fleet(**words)


def test_jobs_are_of_this_machine():
    assert [(place.name, place.at_once) for place in Fleet().places(3)] == [("here", 3)]
    with pytest.raises(BadValue, match="leave out --jobs"):
        Fleet(on=("gpu1:2",)).places(3)


def test_an_order_takes_its_words_and_leaves_the_rest():
    words = {"jobs": 2, "on": (), "silence": 30.0, "device": "cpu", "threads": 2, "preset": "smoke"}
    order = Order.of(words)
    assert (order.jobs, order.fleet.silence, order.fleet.threads, order.fleet.device) == (2, 30.0, 2, "cpu")
    assert words == {"device": "cpu", "threads": 2, "preset": "smoke"}
    assert order.crowd
    assert not Order().crowd
    assert Order(fleet=Fleet(on=("gpu1",))).crowd


def test_a_cluster_without_ray_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # an import of it fails
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(BadValue, match=r"pip install 'icl_lab\[ray\]'"):
        Fleet(engine="ray").places(None)


def test_an_open_cluster_is_refused(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(BadValue, match="open to everybody"):
        Fleet(engine="ray").places(None)
