"""Prompted models beside trained normalizers: read from their folders, told along the shift, judged by nobody."""

import math
from dataclasses import replace

import pytest

from icl_lab.comparison import outside, page
from icl_lab.errors import BadValue, RunFailed
from icl_lab.runs import study_folder
from icl_lab.runs.study_folder import StudyRecord

from . import made


def beside(*folders):
    study = made.study({"softmax": made.times(1.0), "ssa": made.times(0.5, 0.01)})
    return replace(study, outside=outside.read(folders, "linear"))


def test_a_prompted_model_is_a_line_where_it_was_asked(tmp_path):
    study = beside(made.prompted(tmp_path))
    (other,) = study.outside
    line = study.line("sigma_f")
    found = [study.beside(other, cell) for cell in line]
    assert [value for value, _ in found[0::2][:2]] == [3.0, 12.0]
    assert found[0][1] == pytest.approx(0.3)
    assert all(math.isnan(found[place][0]) for place in (1, 3, 4))  # sigma_f 2, 6 and 10 were not asked
    drawn = study.behind(line)
    assert list(drawn) == ["reference:zero", "prompted:big"]
    assert drawn["reference:zero"] == [2.0 * s * s for s in made.SIGMAS]
    text = page.markdown(study, made.SPEC, "icl-lab compare")
    assert "| prompted:big | 3.0 ± 0.3 |  | 12 ± 1.2 |  |  |  |  |" in text
    assert "± is the standard error over its own prompts" in text


def test_facets_are_averaged_with_their_errors(tmp_path):
    folder = made.prompted(tmp_path, sigmas=(1.0, 4.0))
    (other,) = outside.read([folder], "linear")
    value, error = other.at("mse-code", 2, {"sigma_x": 1.0, "length": 40.0})
    assert value == pytest.approx((3 + 12) / 2)
    assert error == pytest.approx(math.hypot(0.3, 1.2) / 2)
    assert math.isnan(other.at("mse-code", 3, {"sigma_x": 1.0, "length": 40.0})[0])
    assert math.isnan(other.at("mse-code", 1, {"sigma_f": 7.0})[0])


def test_each_number_of_decimals_is_a_model(tmp_path):
    found = outside.read([made.prompted(tmp_path, digits=(1.0, 2.0))], "linear")
    assert [each.name for each in found] == ["prompted:big, 1 decimal", "prompted:big, 2 decimals"]
    assert [each.at("mse-code", 1, {"sigma_f": 1.0})[0] for each in found] == [4.0, 5.0]
    assert len(outside.options(found)["beside"]) == 1


def test_the_rules_of_a_comparison_are_judged_without_it(tmp_path):
    from icl_lab.comparison.study import compare, tidy

    with_it = beside(made.prompted(tmp_path))
    alone = replace(with_it, outside=())
    assert tidy(with_it, compare(with_it)) == tidy(alone, compare(alone))


@pytest.mark.slow
def test_what_cannot_stand_beside_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    other = StudyRecord.of("compare", {"baseline": "softmax"}, {}, "icl-lab compare")
    study_folder.publish(other, tmp_path / "compare", {"table.md": "x"}, {})
    twice = [made.prompted(tmp_path), made.prompted(tmp_path, folder="twice")]
    refused = {
        "it holds no study, not one of icl-lab prompted": [tmp_path / "empty"],
        "it holds a study of the kind compare": [tmp_path / "compare"],
        "about the task every, not linear": [made.prompted(tmp_path, task="every", folder="every")],
        "its prompts settle no mse-code": [made.prompted(tmp_path, metric="mse", folder="mse")],
        "prompted:big has several studies of linear": twice,
    }
    for words, folders in refused.items():
        with pytest.raises(BadValue, match=words):
            outside.read(folders, "linear")
    folder = made.prompted(tmp_path)
    (folder / "grid.csv").write_text((folder / "grid.csv").read_text().replace("12.0", "1.0"))
    with pytest.raises(RunFailed, match="damaged or edited"):
        outside.read([folder], "linear")


def test_a_record_finds_what_stood_beside_it_and_nothing_else(tmp_path):
    folder = made.prompted(tmp_path)
    told = outside.options(outside.read([folder], "linear"))
    (again,) = outside.again(told, "linear")
    assert again.name == "prompted:big"
    assert outside.again({"baseline": "softmax"}, "linear") == []
    other = StudyRecord.of("prompted", {"task": "linear", "model": "other"}, {}, "icl-lab prompted")
    study_folder.publish(other, folder, {"grid.csv": (folder / "grid.csv").read_bytes()}, {})
    with pytest.raises(BadValue, match="another study now"):
        outside.again(told, "linear")
