"""What is wrong with tables, as values: all of it at once, and what would solve it, in an interface's own words.

Problems stay at the site, so they may quote a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from coterie.errors import InputError


class Remedy(Enum):
    """What solves a problem, besides another file."""

    DECLARE = auto()
    """Declare the categories of the column, or ignore it."""
    IGNORE = auto()
    CODE = auto()
    """Say that a value stands for a missing one, or ignore the column."""
    FILL = auto()
    """Say what to do about missing values."""
    SELECT = auto()
    """Name the columns to use, or ignore those that some files lack."""
    NONE = auto()


class Words:
    """How an interface names its options; here Python's."""

    def ignore(self, column: str) -> str:  # noqa: ARG002
        return "add the column to 'ignore'"

    def categories(self, column: str, values: Sequence[str]) -> str:  # noqa: ARG002
        return "declare its values in 'categories'"

    def na(self, column: str, value: str) -> str:  # noqa: ARG002
        return "name it in 'na'"

    def declare(self, column: str) -> str:  # noqa: ARG002
        return "name the column in 'categories' so that every value is a category"

    def option(self, name: str, value: str) -> str:
        """An option with a value, to be written as it is."""
        return f"{name}={value!r}"


PYTHON = Words()


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a table.

    ``advice`` may name options in braces, as :meth:`told` fills them in.
    """

    table: str
    fault: str
    advice: str = ""
    remedy: Remedy = Remedy.NONE
    column: str = ""
    values: tuple[str, ...] = ()
    """The column's values where they may be declared, the cell that was seen, or how many are missing."""

    def told(self, words: Words = PYTHON) -> str:
        """What is wrong, and what to do."""
        if not self.advice:
            return self.fault
        advice = self.advice.format(
            ignore=words.ignore(self.column),
            categories=words.categories(self.column, self.values),
            declare=words.declare(self.column),
            na=words.na(self.column, self.values[0] if self.values else ""),
            comma=words.option("csv_decimal", ","),
            separator=words.option("csv_separator", ";"),
            decimal=words.option("csv_decimal", ","),
            encoding=words.option("csv_encoding", "latin-1"),
        )
        return f"{self.fault}; {advice}"


class TableProblems(InputError):
    """Everything that is wrong with a table."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        texts = [problem.told() for problem in self.problems]
        text = texts[0] if len(texts) == 1 else "; ".join(f"({i + 1}) {told}" for i, told in enumerate(texts))
        table = self.problems[0].table
        super().__init__(f"{table}: {text}" if table else text)
