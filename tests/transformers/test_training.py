"""Normalizers learn inside models: gradients reach every learned number, also through checkpoints and compiled code."""

import pytest
import torch
from transformers import StaticCache

from icl_lab import normalizers
from icl_lab.transformers import install, load
from tests.cases import few
from tests.transformers.test_caches import held

SERVED = [*(name for name in normalizers.names() if name != "forget"), "softmax+gated"]
LEARNED = ["ssa", "ssmax:bias=yes", "sink", "elastic", "asentmax", "ssmax-free", "ssa+reweight"]
LEARNED += ["qassmax", "differential", "softmax+gated", "threshold"]
FEW = ["ssa", "softmax+gated", "stick-breaking", "sima"]


def slopes(model, **given):
    model.zero_grad()
    model(**given, labels=given["input_ids"]).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(("kind", "rules"), few(1, [("llama", [*LEARNED, "softmax"]), ("gpt2", SERVED)]))
@pytest.mark.slow
def test_a_step_of_training_moves_every_learned_number(tiny_model, padded, stirred, kind, rules):
    model = tiny_model(kind).train()
    for rule in rules:
        install(model, rule, train_tokens=9)
        learned = {name: p for name, p in model.named_parameters() if "attention_rule" in name}
        assert bool(learned) is (rule.partition(":")[0] in {choice.partition(":")[0] for choice in LEARNED}), rule
        before = {name: p.detach().clone() for name, p in learned.items()}
        for _ in range(2):  # what lies before a matrix of zeros has a slope from the second step on
            model.zero_grad()
            model(**padded, labels=padded["input_ids"]).loss.backward()
            assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters()), rule
            torch.optim.SGD(learned.values(), lr=1.0).step() if learned else None
        for name, p in learned.items():
            assert not torch.equal(p, before[name]), f"{rule}: {name}"
    model.zero_grad()


@pytest.mark.parametrize("rules", few(1, [FEW, LEARNED]), ids=len)
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.slow
def test_gradient_checkpoints_change_no_gradient(tiny_model, padded, stirred, reentrant, rules):
    model, passes = tiny_model("llama").train(), []
    model.model.layers[1].self_attn.register_forward_hook(lambda *_: passes.append(1))
    for rule in rules:
        install(model, rule, train_tokens=9)
        stirred(model)
        for given in (padded, {"input_ids": padded["input_ids"]}):  # without and with the mark of the causal mask
            passes.clear()
            usual = slopes(model, **given, use_cache=False)
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
            kept = slopes(model, **given, use_cache=False)
            model.activation_checkpointing_disable()
            assert len(passes) == 3  # once, then there and back
            for name, slope in usual.items():
                torch.testing.assert_close(kept[name], slope, atol=1e-5, rtol=1e-4, msg=f"{rule}: {name}")


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("kind", "rule"), [("llama", "lssa+reweight:p=3"), ("llama", "ssmax"), ("gpt2", "ssa"), ("llama", "ssa+gated")]
)
def test_compiled_it_gives_the_same(tiny_model, ids, padded, stirred, kind, rule):
    torch._dynamo.reset()
    model = tiny_model(kind, num_hidden_layers=1)
    install(model, rule, train_tokens=9)
    stirred(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        plain, wanted = (each(ids, use_cache=False).logits for each in (compiled, model))
    torch.testing.assert_close(plain, wanted, atol=1e-4, rtol=1e-4)
    compared = []
    for each in (model, compiled):
        model.zero_grad()
        each(**padded, use_cache=False).logits.square().mean().backward()
        compared.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, slope in compared[0].items():
        torch.testing.assert_close(compared[1][name], slope, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.exhaustive
def test_compiled_steps_with_a_cache_of_fixed_size_give_the_same(tiny_model, padded, stirred):
    for rule in ("ssmax", "stick-breaking"):
        torch._dynamo.reset()
        model = tiny_model("llama", num_hidden_layers=1)
        install(model, rule)
        stirred(model)
        compiled, cache = torch.compile(model, backend="aot_eager", fullgraph=True), StaticCache(model.config, 16)
        with torch.no_grad():
            whole = model(**padded, use_cache=False).logits
            model(**{name: x[:, :6] for name, x in padded.items()}, **held(model, cache))
            for at in range(6, 9):
                step = {name: padded[name][:, at : at + 1] for name in ("input_ids", "position_ids")}
                mask = torch.nn.functional.pad(padded["attention_mask"][:, : at + 1], (0, 15 - at))
                got = compiled(**step, attention_mask=mask, **held(model, cache)).logits[:, 0]
                torch.testing.assert_close(got, whole[:, at], atol=1e-4, rtol=1e-4, msg=f"{rule} at {at}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_trainer_learns_keeps_and_resumes(tiny_model, tmp_path):
    """The checkpoint of the Trainer is exactly the model, and the training that goes on from it gives the same."""
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    rows = torch.randint(3, 40, (1, 12), generator=torch.Generator().manual_seed(3)).repeat(32, 1)
    texts = [{"input_ids": row, "labels": row} for row in rows]

    def trainer(model, steps):
        told = {"per_device_train_batch_size": 8, "learning_rate": 1e-2, "lr_scheduler_type": "constant", "seed": 0}
        told |= {"save_steps": 6, "report_to": [], "use_cpu": True, "disable_tqdm": True}
        asked = TrainingArguments(str(tmp_path), max_steps=steps, **told)
        return Trainer(model=model, args=asked, train_dataset=texts)

    model = tiny_model("llama")
    install(model, "ssa")
    before = {name: p.clone() for name, p in model.named_parameters() if "attention_rule" in name}
    trainer(model, 12).train()
    assert all(not torch.equal(p, before[name]) for name, p in model.named_parameters() if name in before)
    kept = load(AutoModelForCausalLM, tmp_path / "checkpoint-12")
    ids = rows[:2]
    assert torch.equal(kept.eval()(ids).logits, model.eval()(ids).logits)
    again = tiny_model("llama")
    install(again, "ssa")
    with torch.no_grad():
        for p in again.parameters():
            p.add_(0.1)  # whatever it starts from, the checkpoint counts
    trainer(again, 12).train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    torch.testing.assert_close(again.eval()(ids).logits, model(ids).logits)
