"""Names and data that nothing can break out of."""

import json
import re

import pytest

from icl_lab.extras.site.names import address, encoded, script

HOSTILE = ["</script><script>alert(1)</script>", "<!--", "]]>", "\u2028", "\"'`", "a&b", "\\", "..", "../../x", "é"]


@pytest.mark.parametrize("text", HOSTILE)
def test_data_holds_no_mark_of_html_and_comes_back_as_it_was(text):
    data = script("run", "x", encoded({text: [text, 1.5, None]})).decode("ascii")
    assert not re.search(r"[<>&]", data)
    inside = data.removeprefix('site.put("run","x",').removesuffix(");\n")
    assert json.loads(inside) == {text: [text, 1.5, None]}
    assert data.count("\n") == 1


@pytest.mark.parametrize("text", [*HOSTILE, "a\udcff"])  # a surrogate, as of a file system
def test_an_address_is_one_plain_name(text):
    assert re.fullmatch(r"[A-Za-z0-9._-]+", address(text))
    assert not address(text).startswith(".")


def test_two_keys_never_share_an_address():
    assert len({address(key) for key in ("a/b", "a-b", "a:b", "a b", "A/b", "x" * 200, "x" * 201)}) == 7


def test_numbers_that_json_has_not_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        encoded([float("nan")])
