"""Bounds declared with a message, such as ``"rows * box**2"``: small expressions, never evaluated as Python."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping

_NODES = (ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.Add, ast.Mult, ast.Pow)


class Bound:
    """An upper bound on the magnitude of every number in an array, over named sizes and limits.

    Names are axes of the message (``k``, ``d``), numbers its request carries, and the limits a run
    declares: ``rows`` (rows a site may hold) and ``box`` (largest magnitude of a value). A name nobody
    has given a value makes the bound infinite: nothing can be said, so nothing is checked but finiteness.

    >>> Bound("rows * box**2").value({"rows": 10, "box": 2})
    40.0
    >>> Bound("rows * box**2").value({"rows": 10})
    inf
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = ast.parse(text, mode="eval").body
        except SyntaxError:
            raise ValueError(f"bound {text!r} is no expression") from None
        nodes = list(ast.walk(self._tree))
        values = [node.value for node in nodes if isinstance(node, ast.Constant)]
        if not all(isinstance(node, _NODES) for node in nodes) or any(type(v) not in (int, float) for v in values):
            raise ValueError(f"bound {text!r} may hold names, numbers, +, * and ** only")
        self.names = frozenset(node.id for node in nodes if isinstance(node, ast.Name))

    def value(self, names: Mapping[str, float]) -> float:
        """The bound as a number, infinite where nothing can be said: a name is missing, the number too large."""
        if not self.names.issubset(names):
            return math.inf
        try:
            value = float(_evaluate(self._tree, names))
        except (ArithmeticError, TypeError):  # too large, 0**-1, or a root of a negative number
            return math.inf
        return math.inf if math.isnan(value) else value

    def __repr__(self) -> str:
        return f"Bound({self.text!r})"


def _evaluate(node: ast.expr, names: Mapping[str, float]) -> float:
    match node:
        case ast.Name(id=name):
            return float(names[name])
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluate(left, names), _evaluate(right, names)
            if isinstance(op, ast.Add):
                return a + b
            return a * b if isinstance(op, ast.Mult) else a**b
        case ast.Constant(value=int() | float() as number):
            return float(number)
    raise AssertionError("checked when the bound was made")
