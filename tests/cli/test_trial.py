"""A fault in the file of a task or a normalizer is found before the first step, with its file and line."""

from pathlib import Path

import pytest

from icl_lab import normalizers, tasks
from icl_lab.base.errors import LabError
from icl_lab.runs import trial
from icl_lab.runs.spec import resolve
from tests.cases import representatives
from tests.cli.test_outside_parts import ROOT, SQUARE

SINE = (ROOT / "tests" / "examples" / "sine.py").read_text()  # as the page has it
TASK_FAULTS = {
    'headline = "mse"': ('headline = "mses"', "no view is called mses; there: mse."),
    "errors.mean(1)}": ("errors.mean()}", "mse is () for 3 prompts, not (b) or (b g)."),
    "return (outputs[:, ::2, 0]": ("return (outputs[:, ::3, 0]", "RuntimeError: The size of tensor a"),
    "return Prompt(tokens, ": ("return Prompt(token, ", "NameError: name 'token' is not defined"),
}
FAULTS = {
    **{right: (SINE, right, *fault) for right, fault in TASK_FAULTS.items()},
    "normalizer": (SQUARE, "return self.c * z", "return self.d * z", "AttributeError: 'Square' object has no"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("dry", [True, False])
def test_a_fault_of_a_part_is_found_before_training(fault, dry, run, tmp_path, monkeypatch, own_parts):
    text, right, wrong, said = FAULTS[fault]
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(text.replace(right, wrong))
    names = ("sine", "softmax") if text == SINE else ("linear", "square")
    words = ["sweep", "--task", names[0], "--attn", names[1], "--preset", "smoke", "--import", "./mine.py"]
    code, _, err = run(*words, *["--dry-run"] * dry)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if right in line)
    expected = line - 1 if right == "errors.mean(1)}" else line  # the shape is that of ``def views``
    assert code == 2, err
    (last,) = (line for line in err.splitlines() if line.startswith("icl-lab:"))
    assert last.startswith(f"icl-lab: mine.py:{expected}: {said}")
    assert not list(tmp_path.rglob("history.csv"))


@pytest.mark.parametrize("name", tasks.registry.names())
def test_every_task_passes_its_trial(name):
    try:
        spec = resolve(name, "softmax", "smoke")
    except LabError as error:
        pytest.skip(str(error))  # needs files of its own
    trial.check_parts(spec)


@pytest.mark.parametrize("name", representatives(normalizers.registry.names()))
def test_every_normalizer_passes_its_trial(name):
    trial.check_parts(resolve("linear", name, "smoke", ["model.heads=4"]))
