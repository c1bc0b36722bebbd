"""Lines drawn with characters."""

from __future__ import annotations

import re

from coterie.cli.watching import chart


def dots(rows):
    """Where dots are set, as (column, row) of dots."""
    bits = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
    found = set()
    for i, row in enumerate(rows[:-2]):
        for j, letter in enumerate(re.split("[┤│]", row)[1]):
            for y in range(4):
                for x in range(2):
                    if letter != " " and ord(letter) - 0x2800 & bits[y][x]:
                        found.add((2 * j + x, 4 * i + y))
    return found


def test_a_chart_goes_from_the_first_value_to_the_last_without_a_gap():
    rows = chart([(5, 100.0), (9, 40.0), (20, 30.0), (45, 10.0)], 80, 8)
    assert len(rows) == 10
    assert max(map(len, rows)) == 60 + len("100 ┤")
    assert rows[0].startswith("100 ┤")
    assert rows[7].startswith(" 10 ┤")
    assert re.fullmatch(r" +round 5 +45", rows[-1])
    set_ = dots(rows)
    assert {(0, 0), (119, 31)} <= set_
    assert {x for x, _ in set_} == set(range(120))
    for x in range(119):  # neighbours touch
        here, there = [{y for column, y in set_ if column == c} for c in (x, x + 1)]
        assert min(abs(a - b) for a in here for b in there) <= 1
    assert (round(4 * 119 / 40), 31 - round(30 * 31 / 90)) in set_


def test_charts_of_one_value_of_equal_values_and_of_little_room():
    assert dots(chart([(3, 7.0)], 80, 8)) == {(0, 31)}
    assert {y for _, y in dots(chart([(3, 7.0), (5, 7.0)], 80, 8))} == {31}
    narrow = chart([(i, 1e6 / (i + 1)) for i in range(500)], 40, 4)
    assert max(map(len, narrow)) <= 40
    plain = chart([(0, 1.0), (9, 2.0)], 60, 4, plain=True)
    assert "".join(plain).isascii()
    assert plain[0].endswith("*")
