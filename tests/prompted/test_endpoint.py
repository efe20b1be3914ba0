"""A server that misbehaves: each way is one line, and passing ones are tried again."""

import gzip
import socket
import time

import pytest

from icl_lab.errors import BadValue
from icl_lab.markdown import printable
from icl_lab.prompted.asking import Failure
from icl_lab.prompted.question import PromptQuestion
from icl_lab.prompted.study import PromptedOptions, address

from .conftest import KEY, completion

CHAT = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}


def question(sent=CHAT):
    return PromptQuestion("key", 0, 4, sent)


@pytest.fixture
def endpoint(stub, blocking):
    from icl_lab.prompted.endpoint import Endpoint

    def build(url="", timeout=5.0, **options):
        return blocking(Endpoint(PromptedOptions("every", "stub", url or stub.url, **options), KEY, timeout))

    return build


def failure(endpoint, retries=0):
    with pytest.raises(Failure) as caught:
        endpoint.ask(question(), retries)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_conversation_is_sent_as_it_is(stub, endpoint):
    reply = endpoint(temperature=0.5, answer_tokens=9).ask(question())
    (sent,) = stub.requests
    assert sent == {
        "model": "stub",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "temperature": 0.5,
        "max_tokens": 9,
    }
    assert stub.paths == ["/v1/chat/completions"]
    assert stub.keys == [f"Bearer {KEY}"]
    assert (reply.said, reply.model, reply.finish, reply.read, reply.wrote, reply.sent) == (
        "True", "stub", "stop", 150, 2, sent,
    )  # fmt: skip


def test_a_text_to_go_on_with_is_sent_as_a_completion(stub, endpoint):
    stub.usual = lambda body: stub.say(" 3", kind="text")
    reply = endpoint().ask(question({"prompt": "Input: 1\nOutput:", "stop": ["\n"]}))
    assert stub.paths == ["/v1/completions"]
    assert stub.requests[0]["prompt"] == "Input: 1\nOutput:"
    assert stub.requests[0]["stop"] == ["\n"]
    assert reply.said == " 3"


def test_fields_of_the_body_replace_ours_and_null_leaves_one_out(stub, endpoint):
    made = endpoint(body={"max_tokens": None, "max_completion_tokens": 500, "top_p": 0.9})
    made.ask(question())
    (sent,) = stub.requests
    assert "max_tokens" not in sent
    assert (sent["max_completion_tokens"], sent["top_p"]) == (500, 0.9)
    assert made.most_tokens(question()) >= 500


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
def test_states_that_pass_are_tried_again_by_the_client(stub, endpoint, status):
    stub.script = [stub.fail(status, {"Retry-After": "0.01"})] * 2
    assert endpoint().ask(question(), 2).retries == 2
    assert len(stub.requests) == 3


def test_a_failure_counts_its_retries(stub, endpoint):
    stub.usual = stub.fail(503, message="too many\nof you")
    found = failure(endpoint(), retries=2)
    assert (str(found), found.retries, found.fatal) == ("the server answered 503: 'too many of you'", 2, False)
    assert len(stub.requests) == 3


def test_a_server_that_asks_for_hours_is_fatal(stub, endpoint):
    stub.script = [stub.fail(429, {"Retry-After": "3600"})]
    assert failure(endpoint(), retries=2).fatal
    stub.usual = stub.fail(429, {"Retry-After": "0.01"})
    assert not failure(endpoint(), retries=1).fatal


@pytest.mark.parametrize("status", [401, 403, 404])
def test_states_that_hold_for_every_question_are_fatal(stub, endpoint, status):
    stub.script = [stub.fail(status)]
    assert failure(endpoint(), retries=2).fatal
    assert len(stub.requests) == 1


def test_a_question_that_is_refused_is_neither(stub, endpoint):
    stub.script = [stub.fail(400, message="too long")]
    found = failure(endpoint(), retries=2)
    assert (found.retries, found.fatal, str(found)) == (0, False, "the server answered 400: 'too long'")


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (b"<html><body>Log in</body></html>", "text/html", "<html><body>Log in</body></html>"),
        (b'{"choices": [{"message": {"content": "Tr', "application/json", "no completion"),
        (b"", "application/json", "nothing"),
        (b"[1, 2]", "application/json", "no completion"),
        (b'"hello"', "application/json", "no completion"),
        (b'{"choices": "none"}', "application/json", "no completion"),
        (b'{"object": "error"}', "application/json", "no completion"),
        (b'{"choices": []}', "application/json", "neither a message nor a text"),
        (b'{"choices": [{"index": 0}]}', "application/json", "neither a message nor a text"),
        (b'{"choices": [{"message": {"content": 3}}]}', "application/json", "no completion"),
        (b"\xff\xfe\x00", "application/json", "no completion"),
        (b"data: {}\n\ndata: [DONE]\n\n", "text/event-stream", "no completion"),
    ],
)
def test_garbage_is_a_failure_in_one_line(stub, endpoint, content, kind, said):
    stub.script = [lambda body: (200, {"Content-Type": kind}, content)]
    found = failure(endpoint())
    assert said in str(found)
    assert not found.fatal


def test_an_answer_without_words_is_an_empty_answer(stub, endpoint):
    stub.script = [lambda body: stub.say(None)]
    assert endpoint().ask(question()).said == ""


@pytest.mark.parametrize("usage", [None, (-500, 2), (150, -500), (0, 0), (1, 1), (None, 2), (10**12, 2), (150, 10**18)])
def test_tokens_are_estimated_where_a_count_is_none_or_absurd(stub, endpoint, usage):
    stub.script = [lambda body: stub.say("True", usage=usage)]
    reply = endpoint().ask(question())
    assert (reply.estimated, reply.read, reply.wrote) == (True, question().about_tokens, 1)


def test_a_slow_server_is_given_up_on(stub, endpoint):
    stub.script = [lambda body: time.sleep(0.5) or stub.say("True")]
    assert str(failure(endpoint(timeout=0.1))) == "the server did not answer in time"


LONG = 400  # parts of an answer that takes far longer, or is far larger, than any bound here


def endless(part, pause):
    """Sends parts of an answer for long."""

    def step(handler):
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(LONG):
                handler.wfile.write(part)
                time.sleep(pause)
        except OSError:
            pass
        handler.close_connection = True

    return lambda body: step


def slow_headers(handler):
    """Sends the first line of an answer a byte now and then."""
    try:
        for _ in range(LONG):
            handler.wfile.write(b"H")
            time.sleep(0.02)
    except OSError:
        pass
    handler.close_connection = True


@pytest.mark.parametrize("step", [endless(b" ", 0.02), lambda body: slow_headers], ids=["body", "headers"])
@pytest.mark.slow
def test_an_answer_that_never_ends_is_given_up_on(stub, endpoint, step):
    stub.script = [step]
    assert str(failure(endpoint(timeout=0.2))) == "the server did not answer in time"


def test_an_answer_that_is_too_large_is_given_up_on(stub, endpoint):
    stub.script = [endless(b" " * 500_000, 0)]
    assert "more than 4,000,000 bytes" in str(failure(endpoint(), retries=1))
    assert len(stub.requests) == 1


@pytest.mark.slow
def test_a_packed_answer_is_not_unpacked(stub, endpoint):
    packed = gzip.compress(b" " * 50_000_000)
    stub.script = [lambda body: (200, {"Content-Encoding": "gzip"}, packed)]
    assert "compressed, which was not asked for" in str(failure(endpoint(), retries=1))
    assert len(stub.requests) == 1


DEEP = b"[" * 200_000 + b"]" * 200_000
MANY_DIGITS = b"9" * 5_000


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(
    "content",
    [DEEP, b'{"choices": [], "x": %b}' % DEEP, b'{"choices": [], "usage": {"prompt_tokens": %b}}' % MANY_DIGITS,
     b'{"error": %b}' % DEEP, b'{"error": %b}' % MANY_DIGITS],
    ids=["deep", "deep field", "many digits", "deep error", "many digits in an error"],
)  # fmt: skip
def test_deep_json_and_long_numbers_are_one_line(stub, endpoint, status, content):
    stub.script = [lambda body: (status, {"Content-Type": "application/json"}, content)]
    assert str(failure(endpoint())).startswith("the server answered")


def cut(handler):
    """Promises more than it sends."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(completion("True")[:40])
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def hang_up(handler):
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


@pytest.mark.parametrize("step", [cut, hang_up])
def test_a_connection_that_breaks_is_tried_again(stub, endpoint, step):
    stub.script = [lambda body: step] * 3
    assert str(failure(endpoint(), retries=1)).startswith("the connection failed")
    assert endpoint().ask(question(), 1).retries == 1


def test_no_server_at_all(endpoint):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert str(failure(endpoint(url=f"http://127.0.0.1:{port}/v1"))).startswith("the connection failed")


def test_a_redirect_is_not_followed(stub, endpoint):
    stub.script = [lambda body: (307, {"Location": f"{stub.url}/elsewhere"}, b"")]
    found = failure(endpoint())
    assert found.fatal
    assert "another address" in str(found)
    assert stub.paths == ["/v1/chat/completions"]


def test_proxies_of_the_environment_are_not_used(stub, endpoint, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert endpoint().ask(question()).said == "True"


def test_a_key_that_the_server_repeats_is_hidden(stub, endpoint):
    stub.script = [stub.fail(401, message=f"wrong key {KEY}"), lambda body: stub.say(f"your key is {KEY}", model=KEY)]
    made = endpoint()
    assert KEY not in str(failure(made))
    reply = made.ask(question())
    assert reply.said == "your key is <key>"
    assert reply.model == "<key>"


def test_control_characters_and_keys_of_a_server_are_cleaned(stub, endpoint):
    stub.script = [
        stub.fail(400, message="\x1b[31mred\x07\ud800"),
        lambda body: stub.say("\x1b]0;x\x07True\n", model="m\x1b[2J\u202e", finish=f"st{KEY}op\x9b"),
    ]
    made = endpoint()
    assert str(failure(made)) == "the server answered 400: '\ufffd[31mred\ufffd\ufffd'"
    reply = made.ask(question())
    assert (reply.said, reply.model, reply.finish) == ("\ufffd]0;x\ufffdTrue\n", "m\ufffd[2J\ufffd", "st<key>op\ufffd")


def test_a_short_key_is_a_placeholder_and_not_hidden(stub):
    from icl_lab.prompted.endpoint import Endpoint

    made = Endpoint(PromptedOptions("every", "stub", stub.url), "EMPTY")
    assert made._clean("the list is EMPTY") == "the list is EMPTY"
    assert KEY not in repr(Endpoint(PromptedOptions("every", "stub", stub.url), KEY))


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ftp://x/v1", "http://", "http://user:pw@host/v1", "https://h/v1?key=x", "http://h:port/v1",
     "http://h/v1#x", "http://[::1/v1"],
)  # fmt: skip
def test_addresses_that_are_none_or_hold_a_secret(url):
    with pytest.raises(BadValue) as caught:
        address(url)
    assert "pw" not in str(caught.value)
    assert "key=x" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://\u202e.x/v1", "http://h\x00/v1", "http://h\x1b[2J/v1"])
def test_an_address_that_the_client_cannot_read_is_one_line(endpoint, url):
    with pytest.raises(BadValue, match="the address of the server cannot be read") as caught:
        endpoint(url=address(url))
    assert printable(str(caught.value)) == str(caught.value)


def test_an_address_is_kept_without_its_last_slash():
    assert address(" https://host:8443/v1/ ") == "https://host:8443/v1"
