"""Parameters declared once: a type, a default, a sentence, and what values are allowed."""

from __future__ import annotations

import functools
import inspect
import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, field, fields
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias, TypeVar

from coterie.errors import InputError, UnknownParameter
from coterie.text import nearest_name

C = TypeVar("C", bound=type)
Choice: TypeAlias = Literal["points", "ranges", "parameters"]
"""What an order may choose: places in the space of rows, ranges of values, numbers on a continuous scale. Each of
them lets an analyst vary a question by as little as they like."""
NOTHING = "nothing"
"""What a parameter chooses that decides no question about rows."""


class Allowed:
    """What values a parameter may have: some words, numbers in a range, whole ones or any, or both; ``none`` allows
    None.

    >>> print(Allowed(whole=True, low=1).problem("k", 0))
    k=0 must be a whole number, at least 1.
    >>> print(Allowed(above=0, high=1).problem("share", 2))
    share=2 must be a number above 0 and at most 1.
    >>> print(Allowed("auto", whole=True, low=1).problem("starts", 0))
    starts=0; it is 'auto' or a whole number, at least 1.
    """

    def __init__(
        self,
        *words: str,
        whole: bool = False,
        low: float | None = None,
        above: float | None = None,
        high: float | None = None,
        below: float | None = None,
        none: bool = False,
    ) -> None:
        self.words, self.whole, self.none = words, whole, none
        self._ends = {"at least": low, "above": above, "at most": high, "below": below}

    def problem(self, name: str, value: Any) -> str | None:
        """One sentence where the value is not allowed."""
        if (value is None and self.none) or (isinstance(value, str) and value in self.words):
            return None
        ends = [f"{words} {end:g}" for words, end in self._ends.items() if end is not None]
        has_numbers = not self.words or self.whole or bool(ends)
        is_number = isinstance(value, Integral if self.whole else Real) and value is not True and value is not False
        if has_numbers and is_number and self._is_between(float(value)):
            return None
        kind_name = "a whole number" + ("," if ends else "") if self.whole else "a number"
        numbers = f"{kind_name}{' ' if ends else ''}{' and '.join(ends)}"
        if not self.words:
            return f"{name}={value!r} must be {numbers}."
        *most, last = [*(repr(word) for word in self.words), *([numbers] if has_numbers else [])]
        return f"{name}={value!r}; it is {', '.join(most)}{' or ' if most else ''}{last}."

    def _is_between(self, value: float) -> bool:
        low, above, high, below = self._ends.values()
        return (
            math.isfinite(value)
            and (low is None or value >= low)
            and (above is None or value > above)
            and (high is None or value <= high)
            and (below is None or value < below)
        )


def parameter(
    default: Any, doc: str, allowed: Allowed | None = None, *, chooses: Choice | Literal["nothing"] | None = None
) -> Any:
    """A parameter: a field of a dataclass with its sentence and, where it can be said, its allowed values.

    ``chooses`` says what kind of choice a value is that is neither a word nor a number.
    """
    return field(default=default, metadata={"doc": doc, "allowed": allowed, "chooses": chooses})


def changed(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given parameters that are not the default."""
    return {
        item.name: given[item.name]
        for item in fields(kind)
        if not _is_same(given.get(item.name, item.default), item.default)
    }


def _is_same(value: Any, default: Any) -> bool:
    """Whether a value is the default; an array, which is compared number by number, never is."""
    same = value == default
    return not getattr(same, "ndim", 0) and bool(same)


def choices(kind: Any, given: Mapping[str, Any]) -> dict[str, Choice]:
    """What kind of choice each given parameter is that is not the default; words and whole numbers are none."""
    declared, found = {item.name: item.metadata for item in fields(kind)}, dict[str, Choice]()
    for name, value in changed(kind, given).items():
        choice = _choice(declared[name], value)
        if choice is not None:
            found[name] = choice
    return found


def _choice(declared: Mapping[str, Any], value: Any) -> Choice | None:
    allowed: Allowed | None = declared.get("allowed")
    if value is None or isinstance(value, bool | str) or declared.get("chooses") == NOTHING:
        return None
    if not isinstance(value, int | float):
        chooses: Choice | None = declared.get("chooses")
        is_nested = isinstance(value, list | tuple) and any(isinstance(one, list | tuple) for one in value)
        return chooses or ("points" if is_nested else "parameters")
    return None if allowed is not None and allowed.whole else "parameters"


def checked(allowed: Allowed, default: Any = MISSING) -> Any:
    """A field of a method's settings whose values :func:`check_parameters` checks."""
    return field(default=default, metadata={"allowed": allowed})


def no_model(default: Any = MISSING) -> Any:
    """A field of a result that a model file leaves out."""
    return field(default=default, metadata={"in_model": False})


def problems(settings: Any) -> Iterator[str]:
    """What is wrong with the parameters, a sentence each."""
    for item in fields(settings):
        allowed: Allowed | None = item.metadata.get("allowed")
        problem = None if allowed is None else allowed.problem(item.name, getattr(settings, item.name))
        if problem is not None:
            yield problem


def check_parameters(settings: Any) -> None:
    """Raise an error that says everything that is wrong with the parameters."""
    wrong = " ".join(problems(settings))
    if wrong:
        raise InputError(wrong)


def described(cls: C) -> C:
    """Add a section on the parameters to the class's docstring, and name the nearest one for one that is unknown."""
    lines = ["", "Parameters", "----------"]
    for item in sorted(fields(cls), key=lambda item: (bool(item.kw_only), item.name == "random_state")):
        lines.append(f"{item.name} : {item.type}, default={item.default!r}")
        lines += textwrap.wrap(item.metadata["doc"], 110, initial_indent="    ", subsequent_indent="    ")
    about, attributes, rest = inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes\n")
    cls.__doc__ = "\n".join([about.rstrip(), *lines, attributes + rest])
    init, names = cls.__init__, [item.name for item in fields(cls)]  # type: ignore[misc]

    @functools.wraps(init)
    def checked_init(self: Any, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in names:
                raise UnknownParameter(f"{cls.__name__} has no parameter {name!r}{nearest_name(name, names)}")
        init(self, *args, **given)

    cls.__init__ = checked_init  # type: ignore[misc]
    return cls
