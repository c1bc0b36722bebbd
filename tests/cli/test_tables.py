"""Tables on narrow terminals: a number is in one piece or not there."""

from __future__ import annotations

import pytest

from coterie.cli import terminal

HEADS = ["cluster", "rows", *(f"component{j}" for j in range(30))]
ROWS = [[str(i), f"{1234 * i:,}", *(f"{(-1) ** j * (j + 1) * 1.2345e-5:.4g}" for j in range(30))] for i in range(4)]


def _shown(monkeypatch, capsys, width, **options):
    monkeypatch.setattr(terminal.console, "_width", width)
    terminal.show_table("A title", HEADS, ROWS, **options)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert max(map(len, lines)) <= width
    return lines


@pytest.mark.parametrize("width", [*range(45, 130), 200])
def test_as_many_columns_as_fit_with_every_number_whole(monkeypatch, capsys, width):
    lines = _shown(monkeypatch, capsys, width, needed=3)
    heads = lines[1].split()
    assert heads[-1] == "..."
    shown = len(heads) - 1
    assert heads[:-1] == HEADS[:shown]
    assert [line.split()[:-1] for line in lines[3:]] == [row[:shown] for row in ROWS]
    used, another = (
        len(lines[1].rstrip()) + 2,
        len(HEADS[shown]) + 3,
    )  # with the space at the end, and between columns
    assert width < used + another


def test_all_columns_where_there_is_room(monkeypatch, capsys):
    lines = _shown(monkeypatch, capsys, 500, needed=3)
    assert lines[1].split() == HEADS
    assert lines[4].split() == ROWS[1]


def test_long_texts_are_broken_before_numbers_are(monkeypatch, capsys):
    monkeypatch.setattr(terminal.console, "_width", 40)
    long = "a-word-of-many-letters-that-nobody-breaks"
    terminal.show_table("A title", ["what", "bytes up", "bytes down"], [[long, "1,234,567,890", "9,876,543,210"]])
    shown = capsys.readouterr().out
    assert "1,234,567,890" in shown
    assert "9,876,543,210" in shown


@pytest.mark.parametrize("width", range(20, 60))
def test_a_number_that_is_not_whole_says_so(monkeypatch, capsys, width):
    monkeypatch.setattr(terminal.console, "_width", width)
    numbers = ["1,234,567,890", "0.12345", "-9.8765e-05"]
    heads = ["systolic blood pressure", "a_name_without_any_break_in_it", "y"]
    terminal.show_table("A title", heads, [numbers])
    shown = capsys.readouterr().out.splitlines()[-2].split()
    assert all(one in numbers or one.endswith("\u2026") for one in shown), shown


@pytest.mark.parametrize("width", range(45, 130))
def test_names_of_several_words_leave_numbers_whole(monkeypatch, capsys, width):
    monkeypatch.setattr(terminal.console, "_width", width)
    heads = ["cluster", "rows", *(f"systolic pressure in hour {j}" for j in range(30))]
    terminal.show_table("A title", heads, ROWS, needed=3)
    last = capsys.readouterr().out.splitlines()[-2].split()
    assert last[-1] == "..."
    assert last[:-1] == ROWS[-1][: len(last) - 1]
