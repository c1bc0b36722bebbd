"""How a CSV file is written: separator, decimal sign and encoding, as given or as its first lines show.

What is found must follow from the lines; where two readings are possible, the error names the options.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from coterie.sites.tables.phrases import quoted
from coterie.sites.tables.problems import Problem, TableProblems

SEPARATORS = (",", ";", "\t", "|")
LINES, LETTERS = 1000, 1 << 18
"""How much of a file is looked at."""
POINT, COMMA = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?"), re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
WHOLE, THOUSANDS = re.compile(r"[+-]?\d+([eE][+-]?\d+)?"), re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_NUL, _CONTROLS = re.compile("\0"), re.compile(r"[\0-\x08\x0e-\x1b\x7f-\x9f]")


class CsvForm(NamedTuple):
    """How a CSV file is written."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"

    @property
    def point(self) -> bool:
        """Whether the decimal sign is a point."""
        return self.decimal == "."

    def told(self, usual: str) -> str:
        """What differs from the usual form, in words; empty if nothing."""
        parts = [f"the separator {self.separator!r}"] if self.separator != usual else []
        parts += [] if self.point else ["decimal commas"]
        parts += [f"the encoding {self.encoding}"] if self.encoding != "utf-8" else []
        return ", ".join(parts[:-1]) + (" and " if parts[1:] else "") + parts[-1] if parts else ""


def found_encoding(
    name: str, start: bytes, is_whole: bool, given: str | None, *, rows_decide: bool
) -> tuple[str, str]:
    """The encoding of a file by its first bytes, and their text; without ``rows_decide`` by its first mark only."""
    marked = next((encoding for mark, encoding in _MARKS if start.startswith(mark)), None)
    guesses = [] if given or marked or not rows_decide else ["cp1252"]
    for encoding in [given or marked or "utf-8", *guesses]:
        text = _decoded(start, encoding, is_whole)
        if text is not None and not (_CONTROLS if encoding in guesses else _NUL).search(text):
            return codecs.lookup(encoding).name.removesuffix("-sig"), text
    tried = f"text in the encoding {given}" if given else "text in UTF-8, UTF-16 or Windows-1252"
    advice = "if it is text, say in which encoding, such as {encoding}"
    raise TableProblems([Problem(name, f"holds bytes that are not {tried}", advice)])


def _decoded(start: bytes, encoding: str, is_whole: bool) -> str | None:
    try:
        own = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
        return codecs.getincrementaldecoder(own)().decode(start, is_whole)
    except UnicodeError:
        return None


class Sample:
    """The first lines of a CSV file, cut at separators, each one tried."""

    def __init__(self, text: str, is_whole: bool) -> None:
        start = text.lstrip("\r\n")[:LETTERS]
        cut = not is_whole or len(start) < len(text.lstrip("\r\n"))
        self._lines = list(islice(io.StringIO(start, newline=""), LINES + 1))
        if cut and len(self._lines) <= LINES:
            self._lines = self._lines[:-1] or self._lines

    def rows(self, separator: str) -> list[list[str]]:
        """The header and the rows; the last row may be in the middle of a quoted cell, and is left out then."""
        try:
            rows = [row for row in csv.reader(self._lines, delimiter=separator) if row]
        except csv.Error:
            return []
        is_open = "".join(self._lines).count('"') % 2 == 1
        return rows[:-1] if is_open and len(rows) > 1 else rows

    def fits(self, separator: str) -> bool:
        """Whether there are several columns, and every row has as many cells as the header."""
        rows = self.rows(separator)
        return len(rows) > 0 and len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows)

    def splits_header(self, separator: str) -> bool:
        return len((self.rows(separator) or [[]])[0]) > 1


def found_separator(name: str, sample: Sample, usual: str, header_only: bool) -> str:
    """The separator by which the first lines are a table."""
    fitting = [s for s in SEPARATORS if (sample.splits_header(s) if header_only else sample.fits(s))]
    if not fitting and not header_only:
        fitting = [s for s in SEPARATORS if sample.splits_header(s)]  # what is wrong with a row is said later
        if not fitting and _is_column_of_commas(sample):
            return ";"
    if len(fitting) > 1:
        fitting = [s for s in fitting if _is_clean(sample, s)] or fitting
    if len(fitting) > 1:
        readings = " or ".join(f"{s!r} ({len(sample.rows(s)[0])} columns)" for s in fitting)
        raise TableProblems([Problem(name, f"the separator may be {readings}", "say which, such as {separator}")])
    return fitting[0] if fitting else usual


def _is_column_of_commas(sample: Sample) -> bool:
    """Whether an only column holds numbers with decimal commas."""
    _, *cells = (row[0].strip() for row in sample.rows(";")) if sample.rows(";") else ("",)
    numbers = [cell for cell in cells if cell]
    return any(map(COMMA.fullmatch, numbers)) and all(COMMA.fullmatch(n) or WHOLE.fullmatch(n) for n in numbers)


def _is_clean(sample: Sample, separator: str) -> bool:
    """Whether no name of a column holds another separator."""
    others = set(SEPARATORS) - {separator}
    return not any(others & set(column) for column in sample.rows(separator)[0])


def found_decimal(name: str, rows: Sequence[Sequence[str]], missing: Iterable[str]) -> str:
    """The decimal sign: a comma if there are columns of numbers with one, and none with a point."""
    left_out, commas, points = set(missing), list[tuple[str, str]](), list[tuple[str, str]]()
    for column, cells in zip(rows[0], zip(*rows[1:], strict=False), strict=False):
        present = [cell for cell in map(str.strip, cells) if cell not in left_out]
        kinds = [next((k for k in (WHOLE, COMMA, POINT) if k.fullmatch(cell)), None) for cell in present]
        with_comma = [cell for cell, kind in zip(present, kinds, strict=True) if kind is COMMA]
        with_point = [cell for cell, kind in zip(present, kinds, strict=True) if kind is POINT]
        if 2 * (len(present) - kinds.count(None)) < len(present):
            continue
        commas += [(column, cell) for cell in with_comma]
        points += [(column, cell) for cell in with_point]
    if not commas:
        return "."
    if points or all(THOUSANDS.fullmatch(cell) for _, cell in commas):
        seen = f"{quoted(commas[0][1])} in column {commas[0][0]!r}"
        other = f" and {quoted(points[0][1])} in column {points[0][0]!r}" if points else ""
        fault = f"the decimal sign may be a comma or a point ({seen}{other})"
        advice = "say which, such as {decimal}, and write numbers without a sign for thousands"
        raise TableProblems([Problem(name, fault, advice)])
    return ","
