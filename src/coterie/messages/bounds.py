"""Bounds declared with a message, such as ``"rows * box[d]**2"``: small expressions, never evaluated as Python."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Limits: TypeAlias = Mapping[str, float | tuple[float, ...]]
"""Limits of a question, by name; a tuple has a limit for each position along an axis, such as each column."""
Magnitude: TypeAlias = float | npt.NDArray[np.float64]

_NODES = (ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.Add, ast.Mult, ast.Pow, ast.Subscript)


class Bound:
    """An upper bound on the magnitude of every number in an array, over named sizes and limits.

    Names are axes of the message (``k``, ``d``), numbers of its request, arrays of its request (``centers``: their
    largest magnitude), and limits: ``rows`` (the rows of a site) and ``box`` (the largest magnitude of a value).
    ``box[d]`` is the limit of each position along the array's last axis, ``d``, where there is one for each; a name
    alone is the largest of them. A name without a value makes the bound infinite: then only finiteness is checked.

    >>> Bound("rows * box**2").value({"rows": 10, "box": 2})
    40.0
    >>> Bound("rows * box**2").value({"rows": 10})
    inf
    >>> Bound("rows * box[d]").value({"rows": 10, "box": (1, 5)})
    array([10., 50.])
    >>> Bound("rows * box").value({"rows": 10, "box": (1, 5)})
    50.0
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = ast.parse(text, mode="eval").body
        except SyntaxError:
            raise ValueError(f"bound {text!r} is not an expression") from None
        nodes = list(ast.walk(self._tree))
        values = [node.value for node in nodes if isinstance(node, ast.Constant)]
        if not all(isinstance(node, _NODES) for node in nodes) or any(type(v) not in (int, float) for v in values):
            raise ValueError(f"bound {text!r} may hold names, names by axis, numbers, +, * and ** only")
        places = [node for node in nodes if isinstance(node, ast.Subscript)]
        if not all(isinstance(n.value, ast.Name) and isinstance(n.slice, ast.Name) for n in places):
            raise ValueError(f"bound {text!r}: only a name may be by axis, as in box[d]")
        axes = {id(node.slice) for node in places}
        self.axes = {
            n.value.id: n.slice.id for n in places if isinstance(n.value, ast.Name) and isinstance(n.slice, ast.Name)
        }
        """By name the axis along which its limits may differ."""
        self.names = frozenset(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in axes)

    def value(self, names: Limits) -> Magnitude:
        """The bound, infinite if a name is missing or the number too large.

        An array with a bound for each position of the last axis if it is by axis and a limit is a tuple.
        """
        if not self.names.issubset(names):
            return math.inf
        used = {name: names[name] for name in self.names}
        arrays = {name: np.array(value, float) for name, value in used.items() if isinstance(value, tuple)}
        try:
            with np.errstate(all="ignore"):
                value = _evaluate(self._tree, {**used, **arrays})
        except (ArithmeticError, TypeError, ValueError):  # too large, 0**-1, limits of different lengths
            return math.inf
        if isinstance(value, np.ndarray):
            return np.where(np.isnan(value), math.inf, value)
        return math.inf if isinstance(value, complex) or math.isnan(value) else float(value)

    def __repr__(self) -> str:
        return f"Bound({self.text!r})"


def _evaluate(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return float(np.max(names[name]))
        case ast.Subscript(value=ast.Name(id=name)):
            return names[name] if isinstance(names[name], np.ndarray) else float(names[name])
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluate(left, names), _evaluate(right, names)
            if isinstance(op, ast.Add):
                return a + b
            return a * b if isinstance(op, ast.Mult) else a**b
        case ast.Constant(value=int() | float() as number):
            return float(number)
    raise AssertionError("checked when the bound was made")
