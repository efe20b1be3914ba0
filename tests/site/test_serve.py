"""The server: this machine's names alone, nothing but the site, and runs in work from what they write."""

import http.client
import json
import os
import socket
import threading
import time

import msgspec
import pytest

from icl_lab.errors import RunFailed
from icl_lab.runs import at_work, checkpoints
from icl_lab.runs.at_work import Word
from icl_lab.site import live, serve
from tests.site import made


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr("icl_lab.site.findings.judged", made.none)
    store = made.store(tmp_path)
    made.finished(store, "softmax")
    made.study(store.root, "compare-x", "Found.")
    return store


@pytest.fixture
def server(store, tmp_path):
    shown = serve.Shown(store, tmp_path / "no-experiments")
    shown.refresh()
    server = serve.bound(shown, 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def ask(server):
    def call(path="/", method="GET", host="", hosts=None):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
        connection.putrequest(method, path, skip_host=True)
        for name in hosts if hosts is not None else [host or f"127.0.0.1:{server.server_address[1]}"]:
            connection.putheader("Host", name)
        connection.endheaders()
        answer = connection.getresponse()
        told = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        return told

    call.port = server.server_address[1]
    return call


def test_pages_and_their_parts_are_answered(ask):
    for path in ("/", "/index.html", "/compare.html", "/live.html", "/assets/site.css", "/vendor/uPlot.iife.min.js"):
        status, headers, body = ask(path)
        assert status == 200, path
        assert body
        assert headers["Content-Length"] == str(len(body))
    assert ask("/assets/base.js")[1]["Content-Type"].startswith(("text/javascript", "application/javascript"))
    assert ask("/index.html?x=1")[0] == 200


def test_only_names_of_this_machine_with_this_port_are_answered(ask):
    for name in ("127.0.0.1", "localhost", "[::1]"):
        assert ask(host=f"{name}:{ask.port}")[0] == 200
    port = ask.port
    others = ["evil.example", f"evil.example:{port}", "127.0.0.1", "localhost", f"127.0.0.1:{port + 1}", "127.0.0.1:"]
    others += [f"127.0.0.1.evil.example:{port}", f"localhost.:{port}", f"127.0.0.1:{port}@evil.example"]
    for path in ("/", "/live.json"):
        for name in others:
            status, _, body = ask(path, host=name)
            assert status == 421, name
            assert b"icl_lab" not in body
        assert ask(path, hosts=[])[0] == 421
        assert ask(path, hosts=[f"127.0.0.1:{port}", "evil.example"])[0] == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_no_method_but_reading(ask, method):
    assert ask(method=method)[0] == 501


def test_head_says_how_much_there_is_and_sends_none_of_it(ask):
    status, headers, body = ask(method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 1000


def test_nothing_outside_the_site_is_answered_and_no_folder_is_listed(ask, store, tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    inside = ["../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "assets/../../secret.txt", "//etc/passwd"]
    inside += [str(tmp_path / "secret.txt"), "files", "files/", "runs/", "assets/", "study.json", ".icl-lab-site.json"]
    inside += ["\\..\\secret.txt", "%00", "index.html%00", "%ff"]
    for name in inside:
        status, _, body = ask(f"/{name}")
        assert status == 404, name
        assert b"secret" not in body


def test_a_copied_file_that_becomes_a_link_is_not_followed(ask, server, store, tmp_path):
    shown = server.RequestHandlerClass.shown
    (name,) = [name for name in shown.site if name.endswith("/table.md")]
    assert ask(f"/{name}")[2] == b"Found."
    (tmp_path / "secret.txt").write_text("secret")
    path = store.root / "compare-x" / "table.md"
    path.unlink()
    path.symlink_to(tmp_path / "secret.txt")
    assert ask(f"/{name}")[0] == 404


def test_answers_forbid_frames_outside_requests_and_guessing(ask):
    for path in ("/", "/live.json", "/nothing"):
        headers = ask(path)[1]
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"


def test_a_port_in_use_is_one_line(server):
    with pytest.raises(RunFailed, match=rf"port {server.server_address[1]} .*--port"):
        serve.bound(server.RequestHandlerClass.shown, server.server_address[1])


def test_a_connection_that_breaks_off_harms_nobody(ask):
    for data in (b"", b"GET", b"GET / HTTP/1.1\r\nHost: x", b"\xff\x00\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", ask.port)) as line:
            line.sendall(data)
    assert ask()[0] == 200


def test_it_is_built_again_when_a_run_or_a_study_is_new_and_only_then(server, store):
    shown = server.RequestHandlerClass.shown
    assert not shown.refresh()
    made.finished(store, "ssa")
    assert shown.refresh()
    assert sum(name.startswith("runs/") for name in shown.site) == 2
    made.study(store.root, "experiments/x-smoke", "More.")
    assert shown.refresh()
    assert sum(name.startswith("studies/") for name in shown.site) == 2
    assert not shown.refresh()


def test_claims_are_judged_again_once_their_time_has_come(store, tmp_path, monkeypatch):
    judged = []
    monkeypatch.setattr("icl_lab.site.findings.judged", lambda *_: judged.append(1) or made.none(*_))
    shown = serve.Shown(store, tmp_path)
    shown.refresh()
    made.finished(store, "ssa")
    assert shown.refresh()
    assert len(judged) == 1  # too early for another judgement
    monkeypatch.setattr(serve, "JUDGE", -1.0)
    assert shown.refresh()
    assert len(judged) == 2
    assert not shown.refresh()


def test_nothing_is_written_into_the_results(ask, server, store):
    def state():
        return {path: path.stat().st_mtime_ns for path in store.root.rglob("*")}

    before = state()
    for path in ("/", "/live.json", "/live.html"):
        ask(path)
    server.RequestHandlerClass.shown.refresh()
    assert state() == before


def word(**more):
    usual = {
        "stage": "train",
        "done": 30,
        "total": 60,
        "since": 0,
        "seconds": 10.0,
        "pause": 2.0,
        "written": time.time(),
    }
    return Word(
        **{**usual, "process": os.getpid(), "device": "cpu (1 threads)", "losses": [(20, 2.0), (30, 1.5)], **more}
    )


def begun(store, said=None, seed=7):
    run = store.run(made.spec_of("ssa"), seed)
    run.begin()
    if said is not None:
        (run.folder / at_work.NAME).write_bytes(msgspec.json.encode(said))
    return run


def test_a_run_in_work_is_told_with_its_curve_and_what_is_left(ask, store):
    begun(store, word())
    status, _, body = ask("/live.json")
    told = json.loads(body)
    (run,) = told["runs"]
    assert status == 200
    assert (run["done"], run["total"], run["stage"], run["state"]) == (30, 60, "training", "in work")
    assert run["curve"] == [[20, 2.0], [30, 1.5]]
    assert run["left"] > 0
    assert told["words"] == "1 run in work by 1 process; 1 in the list of all."


def test_what_is_left_counts_examples_because_prompts_grow(store):
    spec = made.spec_of("ssa", "linear", "train.steps=1000")
    half = live.left(spec, word(done=500, total=1000, seconds=10.0))
    assert half > 10.0  # the second half has the longer prompts
    assert live.left(spec, word(done=0)) is None
    assert live.left(spec, word(stage="test", done=3, total=9, seconds=6.0)) == 12.0


def test_one_that_has_been_silent_for_long_is_not_in_work(store):
    begun(store, word(written=1000.0))
    (run,) = live.told(store.root, 1, "", now=1000.0 + 2 * at_work.SILENCE)["runs"]
    assert run["state"].startswith("silent for 120 s")
    assert run["left"] is None
    (run,) = live.told(store.root, 1, "", now=1000.0 + at_work.SILENCE)["runs"]
    assert run["state"] == "in work"


def test_one_that_is_slow_by_habit_is_not_silent(store):
    begun(store, word(written=1000.0, pause=100.0))
    (run,) = live.told(store.root, 1, "", now=1400.0)["runs"]
    assert run["state"] == "in work"


def test_one_that_says_nothing_is_known_by_its_checkpoint(store):
    run = begun(store)
    state = {"step": 20, "history": [{"step": 20.0, "loss": 2.0}]}
    path = run.folder / checkpoints.NAMES[0]
    path.write_bytes(checkpoints.packed(state))
    now = path.stat().st_mtime
    (told,) = live.told(store.root, 1, "", now=now + 5)["runs"]
    assert (told["done"], told["curve"]) == (20, [[20, 2.0]])
    assert told["state"].startswith("checkpoint 5 s ago")
    (told,) = live.told(store.root, 1, "", now=now + 500)["runs"]
    assert told["state"].startswith("stopped")


def test_what_is_broken_hides_no_other(store):
    begun(store, word())
    run = begun(store, seed=8)
    (run.folder / at_work.NAME).write_text("{")
    (run.folder / checkpoints.NAMES[0]).write_bytes(b"broken")
    other = begun(store, word(), seed=9)
    (other.folder / "spec.json").write_text("{")
    keys = [run["key"].rpartition("/")[2] for run in live.told(store.root, 1, "")["runs"]]
    assert sorted(keys) == ["seed-7", "seed-8"]


def test_a_finished_run_and_one_that_has_not_begun_are_not_in_work(store):
    begun(store)
    assert live.told(store.root, 1, "")["runs"] == []


def test_a_loss_without_end_is_still_json(ask, store):
    begun(store, word(losses=[(20, 2.0), (30, 1e308)]))
    run = begun(store, seed=8)
    state = {"step": 20, "history": [{"step": 20.0, "loss": float("inf")}]}
    (run.folder / checkpoints.NAMES[0]).write_bytes(checkpoints.packed(state))
    told = json.loads(ask("/live.json")[2], parse_constant=lambda name: pytest.fail(name))
    assert [each["loss"] for each in told["runs"]] == [1e308, "inf"]
