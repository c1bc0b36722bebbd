"""Bounds are small expressions and nothing else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.messages.bounds import Bound


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("rows", 10.0),
        ("rows * box", 20.0),
        ("rows * box**2", 40.0),
        ("rows + box * 3", 16.0),
        ("(rows + box) * 3", 36.0),
        ("2 ** box ** 3", 256.0),
        ("4 * rows * d * box**2", 480.0),
        ("rows*box + 1e3", 1020.0),
    ],
)
def test_a_bound_is_worked_out_as_written(text, value):
    found = Bound(text).value({"rows": 10, "box": 2, "d": 3, "unused": math.nan})
    assert found == value
    assert isinstance(found, float)


@pytest.mark.parametrize(
    "text",
    [
        *[
            "max(rows, 2)",
            "rows()",
            "__import__('os')",
            "rows.real",
            "(1).bit_length",
            "rows[0]",
            "[rows]",
            "{}",
            "()",
        ],
        *["rows - 1", "rows / 2", "rows // 2", "rows % 2", "-rows", "+rows", "~rows", "not rows", "rows @ box"],
        *["rows < box", "rows and box", "rows if box else 1", "lambda: 1", "(x := 1)", "[x for x in rows]", "*rows"],
        *["'text'", "b'bytes'", "f'{rows}'", "None", "...", "1j", "await rows", "rows | box", "rows << 1"],
    ],
)
def test_what_is_no_sum_product_or_power_is_refused(text):
    with pytest.raises(ValueError, match="bound"):
        Bound(text)


@pytest.mark.parametrize(
    "text", ["", " ", "rows *", "rows box", "1 +* 2", "rows = 1", "import os", "rows; box", "\0"]
)
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(ValueError, match="is not an expression"):
        Bound(text)


def test_a_name_without_a_value_makes_the_bound_infinite():
    assert Bound("rows * box").value({"rows": 10}) == math.inf
    assert Bound("rows").value({}) == math.inf
    assert Bound("0 * rows").value({}) == math.inf
    assert Bound("3").value({}) == 3.0


@pytest.mark.parametrize("text", ["9**9**9", "box ** 1e9", "1e200 * 1e200", "1e999", "1" + "0" * 400, "box**999 * 0"])
def test_a_number_too_large_makes_the_bound_infinite(text):
    assert Bound(text).value({"box": 1e10}) == math.inf


def test_a_bound_knows_its_names():
    assert Bound("4 * rows * d * box**2 + rows").names == {"rows", "d", "box"}
    assert Bound("12").names == frozenset()
    assert repr(Bound("rows * box")) == "Bound('rows * box')"


@pytest.mark.parametrize("text", ["True", "rows * False"])
def test_truth_values_are_no_numbers(text):
    with pytest.raises(ValueError, match="bound"):
        Bound(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("box ** k", {"box": 0, "k": -1}),  # ZeroDivisionError
        ("k ** 0.5", {"k": -2}),  # a complex number, so TypeError
        ("k * box", {"k": 0, "box": math.inf}),  # not a number
    ],
)
def test_a_bound_nothing_can_be_said_of_is_infinite(text, names):
    assert Bound(text).value(names) == math.inf


expressions = st.recursive(
    st.sampled_from(["rows", "box", "d"]) | st.integers(0, 9).map("{}.0".format),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "*", "**"]), inner).map(lambda e: f"({e[0]} {e[1]} {e[2]})"),
    max_leaves=6,
)


@given(expressions, st.integers(0, 9), st.integers(1, 9), st.integers(0, 9))
def test_any_allowed_expression_means_what_python_means_by_it(text, rows, box, d):
    names = {"rows": float(rows), "box": float(box), "d": float(d)}
    try:
        expected = float(eval(text, {}, names))
    except OverflowError:
        expected = math.inf
    assert Bound(text).value(names) == expected


@given(st.text(max_size=30))
def test_any_text_is_a_bound_or_one_clear_error(text):
    try:
        bound = Bound(text)
    except ValueError:
        with pytest.raises(ValueError, match=r"^bound "):
            Bound(text)
    else:
        assert bound.value({}) >= 0
