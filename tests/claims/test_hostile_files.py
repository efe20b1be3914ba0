"""An experiment's file is refused in one line when it is read, whatever it holds: nothing is trained for it."""

import os

import pytest

from icl_lab.base.errors import BadValue, LabError, UnknownName
from icl_lab.claims import experiment

HEAD = """title = "t"
paper = "p"
task = "linear"
baseline = "softmax"
conditions = "c"
"""
VARIANT = '\n[[variants]]\nname = "softmax"\nattn = "softmax"\n'
CLAIM = """
[[claims]]
statement = "s"
where = "w"
is = "below"
left = {{ of = "softmax", cells = {{ {cells} }} }}
right = {{ of = "softmax", cells = {{ sigma_f = [1] }} }}
"""
SETTINGS = ", ".join(['"train.steps=9"'] * 101)
THOUSANDS = ", ".join(map(str, range(1, 1001)))


@pytest.fixture
def load(tmp_path):
    def read(text, head=HEAD):
        (tmp_path / "mine.toml").write_bytes(text if isinstance(text, bytes) else (head + text).encode())
        return experiment.load("mine", tmp_path)

    return read


def claim(cells):
    return VARIANT + CLAIM.format(cells=cells)


def test_an_ordinary_file_is_read(load):
    assert len(load(claim("sigma_f = [1, 2], sigma_x = [1]")).claims) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (claim("simga_f = [1]"), r"No axis is called 'simga_f'. Did you mean 'sigma_f'\?.*mine.toml: s"),
        (claim("sigma_f = []"), "one or more finite numbers"),
        (claim("sigma_f = [nan]"), "one or more finite numbers"),
        (claim("sigma_f = [2, 10, 2.0]"), r"each value of sigma_f is named once, got \[2.0, 10.0, 2.0\]"),
        (claim(f"sigma_f = [{THOUSANDS}], sigma_x = [{THOUSANDS}]"), "1,000,000 cells are more than the 10,000"),
        (VARIANT + 'set = ["train.steps=9", "x=1"]\n' + "claims = [" + "[" * 90_000, "nested too deeply|Expected"),
        (VARIANT + "[options]\nprompts = " + "9" * 5_000, "4300 digits"),
        ("claims = " + "[" * 100_000 + "]" * 100_000 + VARIANT, "nested too deeply"),
        ("a" + ".a" * 400 + " = 1", "too many dotted parts"),
        ("[" + '"a".' * 400 + "a]", "too many dotted parts"),
        ("x = {" + "a." * 400 + "a = 1}", "too many dotted parts"),
        ("".join(f'\n[[variants]]\nname = "v{n}"\nattn = "softmax"\n' for n in range(10_000)), "length <= 200"),
        (VARIANT + f"set = [{SETTINGS}]\n", "length <= 100"),
        (VARIANT.replace('"softmax"', r'"$\\foo$"', 1), "matching regex"),
        (VARIANT.replace('"softmax"', '"a|b"', 1), "matching regex"),
        (VARIANT.replace('"softmax"', '"<b>"', 1), "matching regex"),
        (VARIANT.replace('"softmax"', f'"{"x" * 81}"', 1), "length <= 80"),
        ("x" * 1_000_001, "at most 1,000,000 bytes"),
        (b"\xff\xfe", "can't decode byte"),
        (b"\0", "mine.toml: "),
    ],
    ids=range(20),
)
def test_a_hostile_file_is_one_line(load, text, said):
    with pytest.raises(LabError, match=said) as error:
        load(text)
    assert "\n" not in str(error.value)


def test_the_axes_are_those_of_the_analysis(load):
    head = HEAD.replace("baseline", 'analysis = "deviant"\nbaseline')
    assert load(claim("factor = [10]").replace("sigma_f", "factor"), head)
    with pytest.raises(UnknownName, match="There are: factor, index, position"):
        load(claim("facotr = [10]").replace("sigma_f", "factor"), head)


def test_a_rule_is_not_swapped_into_a_model_without_attention(load):
    made = load(VARIANT + 'swap = "ssa"\nset = ["model.attention=no"]\n' + CLAIM.format(cells="sigma_f = [1]"))
    with pytest.raises(BadValue, match="no normalizer to swap for ssa"):
        made.spec(made.variants[0], "smoke")


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "folder.toml").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(UnknownName, match=f"No experiment is called '{name}'"):
            experiment.load(name, tmp_path)
