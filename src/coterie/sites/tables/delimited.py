"""CSV and TSV files as sources. Cells are read as text and converted here, so that errors name the row."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds
from pyarrow import csv as arrow_csv

from coterie.errors import InputError
from coterie.sites.tables.cells import as_number, as_truth, form_of, present
from coterie.sites.tables.phrases import quoted, reading
from coterie.sites.tables.sources import Source, check_names
from coterie.text import count_of

CHUNK, LARGEST_CHUNK = 1 << 20, 1 << 26
HEAD = 1 << 20


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

    def _converted(self, column: str, cells: Any, start: int) -> Any:
        if column in self.texts:
            return present(cells, declared=self.texts[column])
        convert = as_truth if kinds.is_boolean(self.schema.field(column).type) else as_number
        return convert(cells, (self.name, column), start)

    # ------------------------------------------------------------ the file

    def _head(self) -> str:
        with reading(self.name, "CSV file"), self._stream() as stream:
            start = stream.read(HEAD)
        try:
            head = codecs.getincrementaldecoder("utf-8-sig")().decode(start)
        except UnicodeDecodeError:
            head = "\0"
        if "\0" in head:
            raise InputError(f"{self.name}: holds bytes that are not UTF-8 text; save it as a CSV file in UTF-8")
        if not head.strip():
            raise InputError(f"{self.name}: is empty; add a first line with the names of the columns")
        return head

    def _header(self, head: str) -> list[str]:
        if self._only_header:
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

    def _stream(self) -> Any:
        return pa.input_stream(str(self.path), compression="gzip" if self._gzip else None)

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
        with reading(self.name, "CSV file"), self._stream() as stream, self._explained(ragged):
            yield arrow_csv.open_csv(stream, read_options=how, parse_options=parse, convert_options=convert)

    @contextmanager
    def _explained(self, ragged: list[Any]) -> Iterator[None]:
        try:
            yield
        except pa.ArrowInvalid as problem:
            if ragged:
                raise InputError(self._ragged(ragged[0])) from None
            if any(words in str(problem) for words in ("straddling", "out of sync")):
                reason = f"a row is longer than {self._chunk >> 20} MB, or a quotation mark is not closed; correct it"
                raise InputError(f"{self.name}: {reason}") from None
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
