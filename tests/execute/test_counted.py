"""Progress of a list: told item by item, and drawn nowhere but on standard error."""

from icl_lab.execute.progress import counted


def test_every_item_is_told_before_it_is_done_and_the_end_after():
    told = []
    seen = [(item, told[-1][1]) for item in counted("abc", "reading", lambda *said: told.append(said))]
    assert seen == [("a", 0), ("b", 1), ("c", 2)]
    assert told[-1] == ("reading", 3, 3, "")


def test_without_a_terminal_quick_work_is_silent(capsys):
    assert list(counted([1, 2], "reading")) == [1, 2]
    assert capsys.readouterr() == ("", "")


def test_a_line_is_said_where_it_takes_long(capsys, monkeypatch):
    monkeypatch.setattr("icl_lab.execute.progress.SAID", 0.0)
    assert list(counted([1, 2], "reading")) == [1, 2]
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading: 1 of 2" in err
