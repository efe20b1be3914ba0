"""A model on disk answers: choices by log-probability, numbers token by token."""

import json
import shutil

import pytest
import torch

from icl_lab.errors import BadValue
from icl_lab.prompted.asking import Failure
from icl_lab.prompted.question import GridCell, PromptQuestion, RequestText

pytest.importorskip("transformers", reason="transformers is not installed")

from icl_lab.language.disk import OnDisk
from icl_lab.language.model import read
from icl_lab.prompted.inprocess import InProcess

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<bot>"


def question(choices=("False", "True"), text="Input: 0.12\nOutput:", sample=0, sent=None, wants=1):
    sent = sent or RequestText(completion=text, before=" ", stop=("\n",))
    return PromptQuestion(GridCell("", (), 10, 2), 0, 0 if wants > 1 else 4, sample, sent, choices, wants)


@pytest.fixture(scope="module")
def language(gpt2):
    return read(str(gpt2), torch.device("cpu"))


@pytest.fixture
def engine(language, gpt2, blocking):
    usual = {"temperature": 0.0, "answer_tokens": 5}
    return lambda place=gpt2, **how: blocking(InProcess(language, str(place), **(usual | how)))


def alone(language, text, answer):
    """The log-probability of an answer after a text, computed for it alone, token by token."""
    before, after = [*language.start, *language.ids(text)], language.ids(answer)
    total = 0.0
    for at, token in enumerate(after):
        with torch.no_grad():
            logits = language.model(input_ids=torch.tensor([[*before, *after[:at]]])).logits[0, -1]
        total += logits.log_softmax(0)[token].item()
    return total


def test_choices_are_scored_by_all_their_tokens_and_the_end(engine, language):
    choices = ("a", "abcdef", "False")
    asked = question(choices)
    reply = engine().ask(asked)
    wanted = [alone(language, asked.sent.completion, f" {choice}\n") for choice in choices]
    assert reply.scores == pytest.approx(wanted, abs=1e-4)
    assert reply.said == choices[wanted.index(max(wanted))]
    assert (reply.wrote, reply.model, reply.sent) == (0, language.name, {"prompt": asked.sent.completion})
    assert reply.read == len(language.start) + len(language.ids(asked.sent.completion))


def test_numbers_are_decoded_greedily(engine, language):
    asked = question(())
    reply = engine().ask(asked)
    ids = [*language.start, *language.ids(asked.sent.completion)]
    made = []
    for _ in range(5):
        with torch.no_grad():
            made.append(int(language.model(input_ids=torch.tensor([[*ids, *made]])).logits[0, -1].argmax()))
    assert reply.said == language.tokenizer.decode([token for token in made if token != 287])
    assert reply.scores == []
    assert engine().ask(asked).said == reply.said


def test_decoding_stops_where_the_format_says(engine, language):
    newline = language.ids("\n")[0]
    asked = question(())

    calls = iter([65, *[newline] * 20])

    def wants_newline(module, args, output):
        output.logits[:, -1, next(calls)] = 1e4
        return output

    hook = language.model.register_forward_hook(wants_newline)
    try:
        reply = engine(answer_tokens=9).ask(asked)
    finally:
        hook.remove()
    assert reply.said == f"{language.tokenizer.decode([65])}\n"
    assert reply.wrote == 2


def test_samples_differ_and_repeat(engine):
    made = engine(temperature=1.5, answer_tokens=12)
    torch.manual_seed(1)
    first = [made.ask(question((), sample=sample)).said for sample in range(3)]
    torch.manual_seed(2)
    assert [made.ask(question((), sample=sample)).said for sample in range(3)] == first
    assert len(set(first)) > 1
    before = torch.get_rng_state()
    made.ask(question(()))
    assert torch.equal(torch.get_rng_state(), before)


def test_lists_are_decoded_and_not_scored(engine):
    reply = engine().ask(question(wants=3))
    assert reply.scores == []
    assert reply.wrote <= 15


def test_a_prompt_that_is_too_long_is_a_failure(engine):
    for asked in (question(text="1 " * 700), question((), text="1 " * 700)):
        with pytest.raises(Failure, match="places for 700 tokens"):
            engine().ask(asked)


def test_conversations_take_the_template_of_the_model(engine, language, gpt2, tmp_path):
    sent = RequestText(messages=(("system", "s"), ("user", "0.1")))
    with pytest.raises(BadValue, match="take --format plain"):
        engine().ask(question(sent=sent))
    folder = tmp_path / "assistant"
    shutil.copytree(gpt2, folder)
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    reply = engine(folder).ask(question(sent=sent))
    assert reply.read == len(language.ids("<system>s\n<user>0.1\n<bot>"))
    assert reply.sent == {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "0.1"}]}


def test_weights_have_a_fingerprint(gpt2, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(gpt2, folder)
    assert OnDisk(folder).fingerprint == OnDisk(gpt2).fingerprint
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert OnDisk(folder).fingerprint != OnDisk(gpt2).fingerprint


@pytest.fixture
def ask_here(run, gpt2, tmp_path, quick_pictures):
    def call(*words):
        small = [
            "--model",
            str(gpt2),
            "--engine",
            "transformers",
            "--preset",
            "smoke",
            "--prompts",
            "2",
            "--shots",
            "10",
        ]
        return run("prompted", "--task", "every", *small, *words, "--results", str(tmp_path / "results"))

    return call


def scores(tmp_path, which=""):
    found = {}
    for path in (tmp_path / "results" / "prompted").glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found[lines[0]["question"]["attn"]] = [line["scores"] for line in lines[1:]]
    return found[which]


def test_the_command_asks_a_model_on_disk_and_swaps_rules_in(ask_here, tmp_path):
    code, said, complaint = ask_here()
    assert code == 0, complaint
    assert "prompted:tiny-gpt2" in said
    code, said, complaint = ask_here("--attn", "average")
    assert code == 0, complaint
    assert "->average" in said
    assert scores(tmp_path) != scores(tmp_path, "average")
    code, said, _ = ask_here()
    assert code == 0  # answered: the model is not even read


def test_a_model_on_disk_costs_nothing(ask_here):
    code, said, _ = ask_here("--dry-run", "--prompts", "600")
    assert (code, "1,200 requests" in said, "--max-requests" in said) == (0, True, False)


def test_an_answered_study_reads_no_model(ask_here, monkeypatch):
    assert ask_here()[0] == 0
    monkeypatch.setattr("icl_lab.prompted.inprocess.read_model", None)
    assert ask_here()[0] == 0


def test_a_model_that_is_no_assistant_says_so_in_one_line(ask_here):
    code, _, complaint = ask_here("--format", "chat")
    assert code == 2
    assert complaint.strip().splitlines()[-1].endswith("it is no assistant; take --format plain.")
