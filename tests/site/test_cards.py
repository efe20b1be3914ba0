"""The table of cards on the first page and a page per card: verdicts in words, as ``icl-lab judge`` prints them."""

import re
from html import unescape

from icl_lab.claims import card
from icl_lab.extras.site import cards
from icl_lab.extras.site.build import Stock, build
from tests.site import made


def site_of(tmp_path):
    store = made.store(tmp_path)
    made.finished(store, "ssa")
    return build(Stock.of(store, tmp_path, judge=made.none, cards=made.cards()))


def texts(html):
    return [" ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).split()) for cell in html]


def test_the_table_has_verdict_effect_and_interval_by_hand(tmp_path):
    table = site_of(tmp_path)["index.html"].decode().partition('class="cards"')[2].partition("</table>")[0]
    head, *rows = (texts(re.findall(r"(?s)<t[hd].*?</t[hd]>", row)) for row in re.findall(r"(?s)<tr>.*?</tr>", table))
    assert head == ["normalizer", "near", "far", "cost"]
    assert rows == [
        ["ssa", "better 0.5 [0.4, 0.6]", "open 0.8 [0.4, 1.6]", "1.50 2.2"],  # most verdicts first
        ["ssmax", "worse 2.0 [1.5, 2.5]", "—", "1.50 2.2"],
    ]
    tones = re.findall(r'class="verdict (\w+)">(\w+)', table)
    assert tones == [("yes", "better"), ("open", "open"), ("no", "worse")]


def test_cells_of_the_table_are_those_of_the_terminal(tmp_path):
    index = site_of(tmp_path)["index.html"].decode()
    for answers in made.cards().found.values():
        for found in answers.values():
            assert f">{card.cell(found)}<" in index


def test_a_card_leads_from_the_table_to_what_the_terminal_says(tmp_path):
    site = site_of(tmp_path)
    shown = made.cards()
    for each in shown.cards:
        path = cards.page(each)
        assert f'href="{path}"' in site["index.html"].decode()
        (text,) = texts([site[path].decode()])
        for line in each.lines()[1:]:
            if not line.startswith("|"):
                assert line.replace("`", "") in text
        for found in each.answers["softmax"].values():
            assert found.interval in text
        assert f"near {each.rule} errs less than softmax" in text


def test_a_folder_without_a_suite_has_no_table(tmp_path):
    store = made.store(tmp_path)
    made.finished(store, "ssa")
    site = build(Stock.of(store, tmp_path, judge=made.none))
    assert b'class="cards"' not in site["index.html"]
    assert not [path for path in site if path.startswith("judge/")]
