"""Wrong calls of every public function: one line of the laboratory's own, whatever an argument is."""

import dataclasses
import inspect

import pytest

import icl_lab as icl
from icl_lab import analyses, api
from icl_lab.execute.where import Where

# A call of each function that names something which is not there, so that nothing is trained where a value fits.
USUAL = {
    "sweep": ["lineer", "ssa"],
    "compare": ["lineer", ["softmax", "ssa"]],
    "analyse": ["deviants", []],
    "attention": [[], [1, 2]],
    "experiment": ["no-such-experiment"],
    "find": ["linear/ssa/no-such-preset"],
    "load": ["linear/ssa/no-such-preset"],
    "import_parts": ["./no-such-file.py"],
    "export": [None],
}
WRONG = [None, True, 3, -1.5, "", {}, [], {"a": 1}, [3], [None], b"x", object(), int, ..., float("nan"), ("ssa", 3)]
PARAMETERS = [
    (name, parameter)
    for name in USUAL
    for parameter in inspect.signature(getattr(api, name)).parameters
    if parameter != "options"
]


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_a_wrong_argument_is_one_line(name, parameter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = getattr(icl, name)
    usual = inspect.signature(function).bind(*USUAL[name]).arguments
    for value in WRONG:
        with pytest.raises(icl.LabError) as raised:
            function(**usual | {parameter: value})
        assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["list_runs", "find", "sweep", "boundary", "load"])
def test_where_is_named_where_it_is_something_else(name):
    given = ["linear", "ssa"] if name == "sweep" else [] if name == "list_runs" else ["linear/ssa/smoke"]
    with pytest.raises(icl.LabError, match="where must be a Where, got 'results'"):
        getattr(icl, name)(*given, where="results")


@pytest.mark.parametrize("field", [field for field in Where.__dataclass_fields__ if field != "progress"])
def test_what_a_where_holds_is_said_where_it_was_an_argument(field):
    with pytest.raises(icl.LabError) as raised:
        icl.sweep("linear", "ssa", **{field: "x"})
    assert str(raised.value) == f"sweep takes no '{field}': say sweep(..., where=icl.Where({field}='x'))."
    with pytest.raises(icl.LabError, match=f"where=icl.Where\\({field}="):
        icl.boundary([], **{field: 1})


def test_arguments_of_earlier_versions_are_named():
    with pytest.raises(icl.LabError, match=r"takes no 'seed': say seeds=\[2\]"):
        icl.sweep("linear", "ssa", seed=2)
    with pytest.raises(icl.LabError, match=r"say settings=\{'draws': 'paper'\}"):
        icl.compare("linear", ["ssa"], draws="paper")
    with pytest.raises(icl.LabError, match="too many positional arguments"):
        icl.list_runs("results")


def test_no_analysis_has_an_option_that_a_where_holds():
    fields = {field.name for name in analyses.names() for field in dataclasses.fields(analyses.registry.part(name))}
    assert fields & set(Where.__dataclass_fields__) == set()


@pytest.mark.parametrize("name", [name for name in api.__dict__ if inspect.isfunction(getattr(api, name))])
def test_no_function_takes_more_than_seven_arguments(name):
    assert len(inspect.signature(getattr(api, name)).parameters) <= 7
