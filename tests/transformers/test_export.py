"""Installed models as graphs: torch.export with a batch and a length that vary, and ONNX, equal to the model itself."""

import pytest
import torch
from torch.export import Dim

from icl_lab import normalizers
from icl_lab.transformers import install
from tests.cases import few, representatives

SERVED = [name for name in normalizers.names() if name != "forget"]
RULES = [*SERVED, "lssa+reweight:p=3", "ssa+gated", "ssa:form=exp,per=layer", "sigmoid:bias=train,l1=yes"]
VARYING = ({0: Dim("b", min=1, max=8), 1: Dim("t", min=3, max=64)},)


class Logits(torch.nn.Module):
    """Token ids (b t) -> logits (b t vocabulary), without a cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


@pytest.fixture
def logits(tiny_model, stirred):
    def build(rule):
        model = tiny_model("gpt2")
        install(model, rule, train_tokens=6)
        stirred(model)
        return Logits(model).eval()

    return build


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", few(1, ["ssa", "sink"]))
@pytest.mark.slow
def test_a_graph_serves_other_batches_and_lengths(logits, rule):
    model = logits(rule)
    program = torch.export.export(model, (torch.arange(22).view(2, 11),), dynamic_shapes=VARYING, strict=False)
    for shape in ((3, 17), (1, 5)):
        ids = torch.randint(3, 40, shape, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(program.module()(ids), model(ids), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", representatives(RULES))
def test_every_normalizer_is_exported_and_runs_in_onnx(logits, rule, tmp_path):
    model, traced = logits(rule), (torch.arange(22).view(2, 11),)
    ids = torch.randint(3, 40, (3, 17), generator=torch.Generator().manual_seed(0))
    program = torch.export.export(model, traced, dynamic_shapes=VARYING, strict=False)
    torch.testing.assert_close(program.module()(ids), model(ids), atol=1e-5, rtol=1e-5)
    runtime = pytest.importorskip("onnxruntime", reason="pip install onnxscript onnxruntime")
    torch.onnx.export(model, traced, dynamic_shapes=VARYING, dynamo=True, verbose=False).save(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: ids.numpy()})
    torch.testing.assert_close(torch.tensor(found), model(ids), atol=1e-5, rtol=1e-4)
