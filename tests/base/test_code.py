"""Hashes of the code of parts: what counts."""

import importlib.util
import sys

import pytest

from icl_lab.base import code


def made(folder, name, text):
    """Hash of the class ``Part`` of a file of the package ``icl_lab.normalizers``, which is not written there."""
    path = folder / f"{name}.py"
    path.write_text(text)
    module = f"icl_lab.normalizers.{name}"
    spec = importlib.util.spec_from_file_location(module, path)
    sys.modules[module] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[module])
        return code.code_hash(sys.modules[module].Part)
    finally:
        del sys.modules[module]
        for cached in (code._definitions, code._imports, code._tree):
            cached.cache_clear()


PLAIN = '''
from icl_lab.normalizers.base import scores
SCALE = 2.0
def half(x): return x / SCALE
class Part:
    """Say what it is."""
    def rows(self, x: int) -> int:
        return half(scores(x))
    def words(self): return "a"
'''
SAME = PLAIN.replace('"""Say what it is."""', '"""Say it otherwise."""').replace(": int", ": float").replace(
    "def half(x): return x / SCALE", "# why\ndef half(x):\n    '''Half.'''\n    return (x / SCALE)"
).replace('return "a"', 'return "b"')  # fmt: skip


def test_words_comments_and_types_do_not_count(tmp_path):
    assert made(tmp_path, "one", PLAIN) == made(tmp_path, "one", SAME)


@pytest.mark.parametrize(("old", "new"), [
    ("return half(scores(x))", "return scores(x)"), ("return x / SCALE", "return x * SCALE"), ("2.0", "3.0"),
    ("import scores", "import softmax as scores"), ("x / SCALE", "x // SCALE"),
])  # fmt: skip
def test_what_a_class_names_counts(tmp_path, old, new):
    assert old in PLAIN
    assert made(tmp_path, "one", PLAIN) != made(tmp_path, "one", PLAIN.replace(old, new))
