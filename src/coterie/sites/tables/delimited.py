"""CSV and TSV files as sources. Cells are read as text and converted here, so that errors name the row."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from pyarrow import csv as arrow_csv

from coterie.errors import InputError
from coterie.sites.tables.archives import GzipText
from coterie.sites.tables.encoders import LARGEST, number_in, too_large
from coterie.sites.tables.phrases import IGNORE_IT, quoted, reading
from coterie.sites.tables.sources import Source, check_names
from coterie.text import count_of

CHUNK, LARGEST_CHUNK = 1 << 20, 1 << 26
HEAD = 1 << 20
MISSING = ("", "NA", "NaN", "nan", "null")
"""Cells that stand for a missing value."""
SAMPLE = 1000
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"
DATE = r"^\d{4}-\d\d?-\d\d?([T ].*)?$|^\d\d?[/.]\d\d?[/.]\d{2,4}( .*)?$"
TRUTH = r"^(?i:true|false)$"
WHOLE = r"^[+-]?\d+$"
Where = tuple[str, str]
"""The table's name and the column's."""


class CsvSource(Source):
    """A CSV or TSV file, compressed or not, with a header and UTF-8 text."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self._gzip = path.suffix.lower() == ".gz"
        self._delimiter = "\t" if ".tsv" in path.name.lower()[-7:] else ","
        head = self._head()
        self._only_header = len(head) < HEAD // 4 and not re.search(r"[\r\n]", head.strip())
        first_line = len(re.split(r"[\r\n]", head.lstrip(), maxsplit=1)[0])
        self._chunk = min(max(CHUNK, 32 * first_line), LARGEST_CHUNK)
        self._names = self._header(head)
        check_names(name, self._names)
        first = next(self._cells(self._names), None)
        forms = [(n, pa.float64() if first is None else form_of(first.column(n))) for n in self._names]
        super().__init__(name, pa.schema(forms), None)

    def batches(self, names: Sequence[str], step: int) -> Iterator[Any]:
        """The file's rows, about 1 MB of text read at a time."""
        start = 0
        for batch in self._cells(names):
            columns = [self._converted(n, batch.column(n), start) for n in names]
            read = pa.RecordBatch.from_arrays(columns, names=list(names))
            yield from (read.slice(place, step) for place in range(0, read.num_rows, step))
            start += read.num_rows

    def forgive(self) -> None:
        """Every column that is not asked for as text is one of numbers, whatever its first cells are."""
        super().forgive()
        self.schema = pa.schema([(name, pa.float64()) for name in self._names])

    def _converted(self, column: str, cells: Any, start: int) -> Any:
        if column in self.texts:
            return present(cells, declared=self.texts[column])
        if self.forgives:
            return as_number_or_missing(cells)
        convert = as_truth if kinds.is_boolean(self.schema.field(column).type) else as_number
        return convert(cells, (self.name, column), start)

    def _head(self) -> str:
        with reading(self.name, "CSV file"), self._file() as file:
            start = file.read(HEAD)
        try:
            head = codecs.getincrementaldecoder("utf-8-sig")().decode(start, len(start) < HEAD)
        except UnicodeDecodeError:
            head = "\0"
        if "\0" in head:
            raise InputError(f"{self.name}: holds bytes that are not UTF-8 text; save it as a CSV file in UTF-8")
        if not head.strip():
            raise InputError(f"{self.name}: is empty; add a first line with the names of the columns")
        return head

    def _header(self, head: str) -> list[str]:
        if self._only_header:
            with reading(self.name, "CSV file"):
                names = next(csv.reader([head.strip("\r\n ")], delimiter=self._delimiter))
        else:
            with self._reader(None) as reader:
                names = list(reader.schema.names)
        if len(names) == 1 and ";" in names[0]:
            raise InputError(f"{self.name}: the separator is ';' ({quoted(names[0])}); save it with ','")
        return names

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
            delimiter=self._delimiter,
            newlines_in_values=True,
            ignore_empty_lines=names is None or len(self._names) > 1,  # an only column's empty cell is an empty line
            invalid_row_handler=keep,
        )
        convert = arrow_csv.ConvertOptions(
            column_types={n: pa.string() for n in names or ()}, include_columns=list(names or ()), null_values=[]
        )
        how = arrow_csv.ReadOptions(use_threads=False, block_size=self._chunk)
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
                    raise InputError(f"{self.name}: holds text that is not UTF-8; save it in UTF-8") from None
                raise

    def _ragged(self, row: Any) -> str:
        where = "a row" if row.number is None else f"row {row.number - 1}"
        cells = count_of(row.actual_columns, "cell")
        return (
            f"{self.name}: {where} has {cells} where the header has {row.expected_columns} "
            f"({quoted(row.text)}); correct it, or put cells that hold {self._delimiter!r} in quotation marks"
        )


def present(cells: Any, *, declared: Set[str] = frozenset()) -> Any:
    """The cells, with null for missing values, unless the cell is a declared category."""
    missing = pa.array([token for token in MISSING if token not in declared], cells.type)
    return pc.if_else(pc.is_in(cells, value_set=missing), pa.scalar(None, cells.type), cells)


def form_of(cells: Any) -> Any:
    """The Arrow type of a column, guessed from its first cells; half of them numbers make it a column of numbers."""
    if _cast(cells.slice(0, SAMPLE)) is not None:  # the common case
        return pa.float64()
    seen = _trimmed(cells.slice(0, SAMPLE)).drop_null()
    if not len(seen) or 2 * _matching(seen, NUMBER) >= len(seen):
        return pa.float64()
    if _matching(seen, TRUTH) == len(seen):
        return pa.bool_()
    return pa.date32() if _matching(seen, DATE) == len(seen) else pa.string()


def as_number(cells: Any, where: Where, start: int) -> Any:
    """The cells as float64; ``InputError`` with the row of a cell that is neither a number nor missing."""
    values = _cast(cells)
    if values is None:
        cells = _trimmed(cells)
        values = _cast(cells)
    if values is None:
        place = _first_stray(cells)
        raise _stray(where, start + place + 1, cells[place].as_py(), "numbers")
    _check_digits(cells, values, where, start)
    return values


def as_number_or_missing(cells: Any) -> Any:
    """The cells as float64, true and false as 1 and 0; null where a cell is neither.

    What a cell becomes depends on no other cell: Arrow's number and Python's are the same where both can read it.
    """
    cells = _trimmed(cells)
    values = _cast(cells)
    if values is not None:
        return values
    truths = {"true": 1.0, "false": 0.0}
    texts = cells.to_pylist()
    return pa.array([None if t is None else truths.get(t.lower(), number_in(t)) for t in texts], pa.float64())


def as_truth(cells: Any, where: Where, start: int) -> Any:
    """Cells of true and false as 1 and 0."""
    cells = _trimmed(cells)
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


def _trimmed(cells: Any) -> Any:
    return present(pc.utf8_trim_whitespace(cells))


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


def _stray(where: Where, row: int, text: str, expected: str) -> InputError:
    table, column = where
    comma = "write decimals with a point, " if re.fullmatch(r"[+-]?\d+,\d+", text) else ""
    return InputError(
        f"{table}: column {column!r} holds {quoted(text)} in row {row} among {expected}; correct it, {comma}"
        f"leave the cell empty if the value is missing, or {IGNORE_IT}"
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
            raise InputError(f"{where[0]}: {too_large(where[1], start + place + 1, text)}")
