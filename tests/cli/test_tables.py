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


@pytest.mark.parametrize("width", [45, 60, 80, 120, 200])
def test_as_many_columns_as_fit_with_every_number_whole(monkeypatch, capsys, width):
    lines = _shown(monkeypatch, capsys, width, needed=3)
    heads = lines[1].split()
    assert heads[-1] == "..."
    shown = len(heads) - 1
    assert heads[:-1] == HEADS[:shown]
    assert [line.split()[:-1] for line in lines[3:]] == [row[:shown] for row in ROWS]
    assert width - len(lines[1].rstrip()) < len("   component12")  # no room was left for another


def test_all_columns_where_there_is_room(monkeypatch, capsys):
    lines = _shown(monkeypatch, capsys, 500, needed=3)
    assert lines[1].split() == HEADS
    assert lines[4].split() == ROWS[1]
