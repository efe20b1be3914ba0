"""Options out of bounds are one line each, before anything is loaded or trained."""

import pytest

from icl_lab.cli.options import numbers, wholes

SWEEP = ["sweep", "--task", "linear", "--attn", "ssa", "--preset", "smoke"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*SWEEP, "--threads", "1000000"], "'--threads': 1000000 is not in the range 1<=x<=1024"),
        ([*SWEEP, "--threads", "9" * 20], "is not in the range 1<=x<=1024"),
        ([*SWEEP, "--jobs", "1000000"], "'--jobs': 1000000 is not in the range 1<=x<=1024"),
        ([*SWEEP, "--seeds", "1e9"], "'--seeds': '1e9' is not a valid integer"),
        ([*SWEEP, "--seeds", "1000000000"], "1000000000 is not in the range 1<=x<=10000"),
        ([*SWEEP, "--shard", "²/3"], "'²/3' is not part I of N"),
        ([*SWEEP, "--shard", f"1/{'9' * 30}"], "is not part I of N"),
        (["functions", "--results", ""], "'' names no folder"),
        (["costs", "--results", " "], "' ' names no folder"),
        (["list", "runs", "--results", ""], "'' names no folder"),
        (["costs", "--lengths", ""], "--lengths: name at least one length"),
        (["costs", "--lengths", "²,3"], "'²,3' is not a list of whole numbers"),
        (["costs", "--lengths", "0,3"], "'0,3' is not a list of whole numbers"),
        (["costs", "--lengths", "64,,128"], "'64,,128' is not a list of whole numbers"),
        (["costs", "--threads", "1000000"], "'--threads': 1000000 is not in the range"),
        (["bench", "--threads", "1000000"], "'--threads': 1000000 is not in the range"),
    ],
)
def test_an_option_out_of_bounds_is_one_line(run, tmp_path, words, said):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err.strip().splitlines()[-1]
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_results_that_are_no_folder_are_refused_by_commands_that_train(run):
    code, _, err = run(*SWEEP, results="")
    assert code == 2
    assert "'' names no folder" in err


@pytest.mark.parametrize("text", ["nan", "1,inf", "-inf", "1e999", "1,,2", "", "1,two"])
def test_a_list_of_numbers_holds_finite_ones(text):
    with pytest.raises(Exception, match="is not a list of numbers such as"):
        numbers(text, "--factors")


def test_lists_are_read():
    assert numbers("1,-2.5, 3e2", "--factors") == [1.0, -2.5, 300.0]
    assert wholes("64, 128", "--lengths") == [64, 128]
    assert wholes("", "--lengths") == []
