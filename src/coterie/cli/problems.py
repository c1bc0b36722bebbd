"""What is wrong with the files of a run, in one message, in the words of the command line or of a job file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from coterie.sites.tables.problems import Problem, Remedy, Words
from coterie.sites.tables.reading import ALL, number_in
from coterie.text import count_of

MARKS = ("?", "-", ".", "n/a", "N/A", "none", "None", "missing", "unknown")
"""Texts that usually stand for a missing value."""


class CommandLine(Words):
    """Options of commands."""

    start = "pass"
    fill = "--missing mean"
    drop = "--missing drop"

    def ignore(self, column: str) -> str:
        return f"{self.start} {self.names('ignore', [column])}"

    def categories(self, column: str, values: Sequence[str]) -> str:
        return f"{self.start} {self.levels({column: values})}"

    def na(self, column: str, value: str) -> str:
        return f"{self.start} {self.code(column, value)}"

    def declare(self, column: str) -> str:
        return f"{self.start} {self.levels({column: []})} so that every value is a category"

    def option(self, name: str, value: str) -> str:
        return f"--{name.replace('_', '-')} {shlex.quote(value)}"

    def names(self, name: str, columns: Sequence[str]) -> str:
        """An option with names of columns."""
        return self.option(name, ",".join(columns))

    def levels(self, categories: Mapping[str, Sequence[str]]) -> str:
        """Options with the values of columns."""
        texts = (f"{name}={','.join(own)}" if own else name for name, own in categories.items())
        return " ".join(self.option("categories", text) for text in texts)

    def listed(self, options: Sequence[str]) -> str:
        """Several options."""
        return f"{self.start} {' '.join(options)}"

    def code(self, column: str, value: str) -> str:
        return self.option("na", value if column == ALL else f"{column}={value}")


class JobFile(CommandLine):
    """Keys of a job file."""

    start = "add"
    fill = "missing = 'mean'"
    drop = "missing = 'drop'"

    def option(self, name: str, value: str) -> str:
        return f"{name} = {json.dumps(value, ensure_ascii=False)}"

    def names(self, name: str, columns: Sequence[str]) -> str:
        return f"{name} = {json.dumps(list(columns), ensure_ascii=False)}"

    def levels(self, categories: Mapping[str, Sequence[str]]) -> str:
        texts = (f"{_key(name)} = {json.dumps(list(own), ensure_ascii=False)}" for name, own in categories.items())
        return f"categories = {{ {', '.join(texts)} }}"

    def listed(self, options: Sequence[str]) -> str:
        return "\n  ".join([f"{self.start}:", *options])

    def code(self, column: str, value: str) -> str:
        return f"na = {{ {_key(column)} = {json.dumps([value], ensure_ascii=False)} }}"


def _key(column: str) -> str:
    """The column as a key of TOML."""
    is_bare = column.isascii() and column.replace("_", "").replace("-", "").isalnum()
    return column if is_bare else json.dumps(column, ensure_ascii=False)


def message(problems: Sequence[Problem], words: CommandLine, *, can_drop: bool = True) -> str:
    """All problems in one message, and what would solve those that options can solve."""
    groups = [list(group) for _, group in groupby(_in_order(problems), _kind)]
    if len(groups) == 1:
        return f"{_line(groups[0], words, with_advice=True)}{_fill_advice(groups[0][0], words, can_drop)}."
    lines = [
        f"- {_line(group, words, with_advice=group[0].remedy in (Remedy.NONE, Remedy.CODE))}" for group in groups
    ]
    solved = list(_options(groups, words, can_drop))
    end = [words.listed(solved)] if solved else []
    return "\n".join([f"the files cannot be used yet, for {count_of(len(groups), 'reason')}:", *lines, *end])


def _in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Problems of one kind one after the other, kinds as they were first seen."""
    places: dict[object, int] = {}
    for problem in problems:
        places.setdefault(_kind(problem), len(places))
    return sorted(problems, key=lambda problem: places[_kind(problem)])


def _kind(problem: Problem) -> object:
    """Problems of one kind are told of together: those of one column, or else each one alone."""
    return (problem.remedy, problem.column) if problem.column else (problem.table, problem.fault)


def _line(group: Sequence[Problem], words: CommandLine, *, with_advice: bool) -> str:
    """What is wrong in one or several files."""
    first, *others = group
    if first.remedy is Remedy.FILL and others:
        counts = ", ".join(f"{problem.values[0]} in {problem.table}" for problem in group)
        return f"column {first.column!r} holds missing values: {counts}"
    text = first.told(words) if with_advice else first.fault
    text = f"{first.table}: {text}" if first.table else text
    return text + (f" (also in {', '.join(problem.table for problem in others)})" if others else "")


def _fill_advice(problem: Problem, words: CommandLine, can_drop: bool) -> str:
    if problem.remedy is not Remedy.FILL:
        return ""
    drop = f", or {words.drop} to leave their rows out" if can_drop else ""
    return f"; {words.start} {words.fill} to fill them{drop}"


def _options(groups: Sequence[Sequence[Problem]], words: CommandLine, can_drop: bool) -> Iterable[str]:
    """Every option that solves some of the problems."""
    kinds = {remedy: [group for group in groups if group[0].remedy is remedy] for remedy in Remedy}
    left_out = [group[0].column for group in kinds[Remedy.IGNORE]]
    if kinds[Remedy.SELECT]:
        yield words.names("columns", [name for name in kinds[Remedy.SELECT][0][0].values if name not in left_out])
    elif left_out:
        yield words.names("ignore", left_out)
    seen = {group[0].column: [value for one in group for value in one.values] for group in kinds[Remedy.DECLARE]}
    strays = {value for group in kinds[Remedy.CODE] for problem in group for value in problem.values}
    marks = [mark for mark in MARKS if mark in strays or any(mark in values for values in seen.values())]
    levels = {name: [v for v in dict.fromkeys(values) if v not in marks] for name, values in seen.items()}
    levels = {name: values for name, values in levels.items() if any(number_in(value) is None for value in values)}
    for mark in marks:
        yield words.code(ALL, mark)
    if levels:
        yield words.levels(levels)
    if kinds[Remedy.FILL]:
        yield f"{words.fill} (or {words.drop})" if can_drop else words.fill
