"""CSV and TSV files as sources. Cells are read as text and converted here, so that errors name the row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from pyarrow import csv as arrow_csv

from coterie.errors import InputError
from coterie.sites.tables.archives import GzipText
from coterie.sites.tables.csv_forms import CsvForm, Sample, found_decimal, found_encoding, found_separator
from coterie.sites.tables.encoders import LARGEST, too_large
from coterie.sites.tables.phrases import quoted, reading
from coterie.sites.tables.problems import Problem, Remedy, TableProblems
from coterie.sites.tables.reading import Reading, number_in
from coterie.sites.tables.sources import Source, check_names
from coterie.text import count_of

CHUNK, LARGEST_CHUNK = 1 << 20, 1 << 26
HEAD = 1 << 20
MISSING = ("", "NA", "NaN", "nan", "null")
"""Cells that stand for a missing value."""
SAMPLE = 1000
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"
DATE = r"^\d{4}-\d\d?-\d\d?([T ].*)?$|^\d\d?[/.]\d\d?[/.]\d{2,4}( .*)?$"
NO_POINT = "\u00b7"
"""Stands for a point where the decimal sign is a comma."""
TRUTH = r"^(?i:true|false)$"
WHOLE = r"^[+-]?\d+$"
Where = tuple[str, str]
"""The table's name and the column's."""


class CsvSource(Source):
    """A CSV or TSV file, compressed or not, with a header.

    Separator, decimal sign and encoding are given, or found by the first lines. Where it forgives, rows decide
    nothing: the header shows the separator, and a mark at the beginning the encoding.
    """

    def __init__(self, path: Path, name: str, how: Reading, *, forgives: bool = False) -> None:
        self.path, self.name, self.forgives = path, name, forgives
        self.codes = {column: frozenset(map(str, values)) for column, values in how.na.items()}
        self._gzip = path.suffix.lower() == ".gz"
        usual = "\t" if ".tsv" in path.name.lower()[-7:] else ","
        head, is_whole, encoding = self._head(how.csv_encoding)
        self._only_header = len(head) < HEAD // 4 and not re.search(r"[\r\n]", head.strip())
        first_line = len(re.split(r"[\r\n]", head.lstrip(), maxsplit=1)[0])
        self._chunk = min(max(CHUNK, 32 * first_line), LARGEST_CHUNK)
        self._form = self._found_form(how, Sample(head, is_whole), usual, encoding)
        self._names = self._header(head)
        check_names(name, self._names)
        first = None if forgives else next(self._cells(self._names), None)
        forms = [(n, pa.float64() if first is None else self._form_of(n, first.column(n))) for n in self._names]
        super().__init__(name, pa.schema(forms), None)
        self.codes, self.forgives, self.form = self.codes, forgives, self._form.told(usual)

    def _found_form(self, how: Reading, sample: Sample, usual: str, encoding: str) -> CsvForm:
        separator, decimal = how.csv_separator, how.csv_decimal
        header_only = self.forgives or self._only_header
        if separator is None:
            separator = found_separator(self.name, sample, usual, header_only)
        rows = [] if header_only or decimal else sample.rows(separator)
        if rows:
            codes = {code for codes in self.codes.values() for code in codes}
            decimal = found_decimal(self.name, rows, {*MISSING, *codes})
        return CsvForm(separator, decimal or ".", encoding)

    def _form_of(self, column: str, cells: Any) -> Any:
        """The Arrow type of a column, guessed from its first cells."""
        return form_of(self._points(present(cells.slice(0, SAMPLE), codes=self.codes_of(column))), self._form.point)

    def read(self, names: Sequence[str], step: int) -> Iterator[Any]:
        """The file's rows, about 1 MB of text read at a time."""
        start = 0
        for batch in self._cells(names):
            columns = [self._converted(n, batch.column(n), start) for n in names]
            read = pa.RecordBatch.from_arrays(columns, names=list(names))
            yield from (read.slice(place, step) for place in range(0, read.num_rows, step))
            start += read.num_rows

    def _converted(self, column: str, cells: Any, start: int) -> Any:
        if column in self.texts:
            return present(cells, declared=self.texts[column])
        is_truth = kinds.is_boolean(self.schema.field(column).type)
        values = _cast(cells) if self._form.point and not is_truth else None  # the common case
        if values is None:
            cells = self._points(_trimmed(cells, self.codes_of(column)))
        if self.forgives:
            return as_number_or_missing(cells, values)
        convert = as_truth if is_truth else partial(as_number, values=values)
        try:
            return convert(cells, (self.name, column), start)
        except Stray as stray:
            problem = self._as_written(stray.problem)
            if self.strays is None:
                raise TableProblems([problem]) from None
            self.strays.setdefault(column, problem)
            return pa.nulls(len(cells), pa.float64())

    def _points(self, cells: Any) -> Any:
        """Cells with decimal points; a cell that had a point is no number then."""
        if self._form.point:
            return cells
        return pc.replace_substring(pc.replace_substring(cells, ".", NO_POINT), ",", ".")

    def _as_written(self, problem: Problem) -> Problem:
        """A problem that quotes a cell as it is in the file."""
        if self._form.point:
            return problem
        written = {".": ",", NO_POINT: "."}
        cell = problem.values[0] if problem.values else ""
        was = "".join(written.get(letter, letter) for letter in cell)
        return replace(problem, fault=problem.fault.replace(quoted(cell), quoted(was)), values=(was,))

    def _head(self, encoding: str | None) -> tuple[str, bool, str]:
        """The file's first text, whether it is all of it, and its encoding."""
        with reading(self.name, "CSV file"), self._file() as file:
            start = file.read(HEAD)
        is_whole = len(start) < HEAD
        found, head = found_encoding(self.name, start, is_whole, encoding, rows_decide=not self.forgives)
        if not head.strip():
            raise InputError(f"{self.name}: is empty; add a first line with the names of the columns")
        return head, is_whole, found

    def _header(self, head: str) -> list[str]:
        if self._only_header:
            with reading(self.name, "CSV file"):
                return next(csv.reader([head.strip("\r\n ")], delimiter=self._form.separator))
        with self._reader(None) as reader:
            return list(reader.schema.names)

    def _cells(self, names: Sequence[str]) -> Iterator[Any]:
        if self._only_header:
            return
        with self._reader(names) as reader:
            yield from reader

    def _file(self) -> Any:
        return GzipText(self.path, self.name) if self._gzip else self.path.open("rb")

    def _stream(self) -> Any:
        return pa.input_stream(self._file() if self._gzip else str(self.path), compression=None)

    @contextmanager
    def _reader(self, names: Sequence[str] | None) -> Iterator[Any]:
        """A reader of these columns as text (None: of the header only)."""
        ragged: list[Any] = []

        def keep(row: Any) -> str:
            ragged.append(row)
            return "error"

        parse = arrow_csv.ParseOptions(
            delimiter=self._form.separator,
            newlines_in_values=True,
            ignore_empty_lines=names is None or len(self._names) > 1,  # an only column's empty cell is an empty line
            invalid_row_handler=keep,
        )
        convert = arrow_csv.ConvertOptions(
            column_types={n: pa.string() for n in names or ()}, include_columns=list(names or ()), null_values=[]
        )
        encoding = {"utf-8": "utf8"}.get(
            self._form.encoding, self._form.encoding
        )  # Arrow's own, which it need not decode
        how = arrow_csv.ReadOptions(use_threads=False, block_size=self._chunk, encoding=encoding)
        with reading(self.name, "CSV file"), self._stream() as stream:
            try:
                yield arrow_csv.open_csv(stream, read_options=how, parse_options=parse, convert_options=convert)
            except pa.ArrowInvalid as problem:
                if ragged:
                    raise InputError(self._ragged(ragged[0])) from None
                if any(words in str(problem) for words in ("straddling", "out of sync")):
                    reason = f"a row is longer than {self._chunk >> 20} MB, or a quotation mark is not closed"
                    raise InputError(f"{self.name}: {reason}; correct it") from None
                if "UTF8" in str(problem):
                    raise self._other_encoding() from None
                raise
            except UnicodeError:
                raise self._other_encoding() from None

    def _other_encoding(self) -> TableProblems:
        fault = f"holds text that is not in the encoding {self._form.encoding}"
        return TableProblems([Problem(self.name, fault, "say {encoding}, for example, or save it in UTF-8")])

    def _ragged(self, row: Any) -> str:
        where = "a row" if row.number is None else f"row {row.number - 1}"
        cells = count_of(row.actual_columns, "cell")
        return (
            f"{self.name}: {where} has {cells} where the header has {row.expected_columns} "
            f"({quoted(row.text)}); correct it, or put cells that hold {self._form.separator!r} in quotation marks"
        )


class Stray(Exception):
    """A cell that cannot be read."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.fault)
        self.problem = problem


def present(cells: Any, *, declared: Set[str] = frozenset(), codes: Set[str] = frozenset()) -> Any:
    """The cells, with null for missing values, unless the cell is a declared category."""
    missing = pa.array([*(token for token in MISSING if token not in declared), *codes], cells.type)
    return pc.if_else(pc.is_in(cells, value_set=missing), pa.scalar(None, cells.type), cells)


def form_of(cells: Any, has_point: bool = True) -> Any:
    """The Arrow type of a column, guessed from its first cells; half of them numbers make it a column of numbers."""
    if _cast(cells) is not None:  # the common case
        return pa.float64()
    seen = _trimmed(cells).drop_null()
    if not len(seen) or 2 * _matching(seen, NUMBER) >= len(seen):
        return pa.float64()
    if _matching(seen, TRUTH) == len(seen):
        return pa.bool_()
    return (
        pa.date32()
        if _matching(seen, DATE if has_point else DATE.replace("/.", "/" + NO_POINT)) == len(seen)
        else pa.string()
    )


def as_number(cells: Any, where: Where, start: int, values: Any = None) -> Any:
    """The cells as float64, which may be known; ``Stray`` for the first that is neither a number nor missing."""
    values = _cast(cells) if values is None else values
    if values is None:
        place = _first_stray(cells)
        raise _stray(where, start + place + 1, cells[place].as_py(), "numbers")
    _check_digits(cells, values, where, start)
    return values


def as_number_or_missing(cells: Any, values: Any = None) -> Any:
    """The cells as float64, true and false as 1 and 0; null where a cell is neither.

    What a cell becomes depends on no other cell: Arrow's number and Python's are the same where both can read it.
    """
    values = _cast(cells) if values is None else values
    if values is not None:
        return values
    truths = {"true": 1.0, "false": 0.0}
    texts = cells.to_pylist()
    return pa.array([None if t is None else truths.get(t.lower(), number_in(t)) for t in texts], pa.float64())


def as_truth(cells: Any, where: Where, start: int) -> Any:
    """Cells of true and false as 1 and 0."""
    truths = pc.index_in(pc.utf8_lower(cells), value_set=pa.array(["false", "true"], cells.type))
    stray = pc.index(pc.and_(cells.is_valid(), truths.is_null()), True).as_py()
    if stray >= 0:
        raise _stray(where, start + stray + 1, cells[stray].as_py(), "true and false")
    return truths


def _cast(cells: Any) -> Any:
    """The cells as float64; None if one is not a number."""
    with suppress(pa.ArrowInvalid):
        return cells.cast(pa.float64())
    return None


def _trimmed(cells: Any, codes: Set[str] = frozenset()) -> Any:
    return present(pc.utf8_trim_whitespace(cells), codes=codes)


def _matching(cells: Any, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(cells, pattern)).as_py())


def _first_stray(cells: Any) -> int:
    """The position of the first cell that is not a number, by bisection."""
    good, bad = 0, len(cells)
    while bad - good > 1:
        middle = (good + bad) // 2
        if _cast(cells.slice(good, middle - good)) is None:
            bad = middle
        else:
            good = middle
    return good


def _stray(where: Where, row: int, text: str, expected: str) -> Stray:
    table, column = where
    comma = "write decimals with a point or say {comma}, " if re.fullmatch(r"[+-]?\d+,\d+", text) else ""
    return Stray(
        Problem(
            table,
            f"column {column!r} holds {quoted(text)} in row {row} among {expected}",
            f"correct it, {comma}{{na}} or leave the cell empty if the value is missing, or {{ignore}}",
            Remedy.CODE,
            column,
            (text,),
        )
    )


def _check_digits(cells: Any, values: Any, where: Where, start: int) -> None:
    """Refuse whole numbers that float64 would round."""
    large = np.abs(values.to_numpy(zero_copy_only=False)) >= LARGEST
    if not large.any():
        return
    whole = pc.match_substring_regex(cells, WHOLE).fill_null(False).to_numpy(zero_copy_only=False)
    for place in np.flatnonzero(large & whole).tolist():
        text = cells[place].as_py()
        digits = text.lstrip("+-0")
        if len(digits) > len(str(LARGEST)) or int(digits) > LARGEST:
            raise Stray(too_large(*where, start + place + 1, text))
