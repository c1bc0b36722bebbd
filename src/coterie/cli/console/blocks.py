"""What a page shows, as values: a page is sections of blocks, and ``page.js`` knows how a block looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from coterie.cli.terminal import is_number

Tone: TypeAlias = Literal["", "good", "bad"]


class Text(msgspec.Struct, tag="text", frozen=True):
    """Sentences, a paragraph each."""

    sentences: list[str]
    tone: Tone = ""


class Facts(msgspec.Struct, tag="facts", frozen=True):
    """Names and values."""

    rows: list[list[str]]
    title: str = ""


class Tiles(msgspec.Struct, tag="tiles", frozen=True):
    """The few numbers to see first."""

    rows: list[list[str]]


class Table(msgspec.Struct, tag="table", frozen=True):
    """Rows of texts; columns of numbers are right-aligned."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    numeric: list[bool]


class Chart(msgspec.Struct, tag="chart", frozen=True):
    """Values over rounds."""

    title: str
    points: list[tuple[int, float]]
    low: str
    high: str
    """The smallest and the largest value, as a person reads them."""


class Part(msgspec.Struct, tag="part", frozen=True):
    """Blocks that take a while: the page asks for them once they are to be seen."""

    name: str
    wait: str
    """What to read until then."""


class Button(msgspec.Struct, frozen=True):
    """Something to decide, once its consequences were read."""

    label: str
    question: str
    consequences: list[str]
    action: str
    value: str
    tone: Tone = ""


class Buttons(msgspec.Struct, tag="buttons", frozen=True):
    """What can be decided."""

    buttons: list[Button]


class Fold(msgspec.Struct, tag="fold", frozen=True):
    """Blocks below a title on which one clicks."""

    key: str
    title: str
    blocks: list[Block]
    is_open: bool = False


Block: TypeAlias = Text | Facts | Tiles | Table | Chart | Part | Buttons | Fold


class Section(msgspec.Struct, frozen=True):
    """Blocks under a heading."""

    key: str
    title: str
    blocks: list[Block]
    badge: str = ""
    """What the navigation says besides: how many orders wait."""


class Page(msgspec.Struct, frozen=True):
    """All of a page."""

    title: str
    lead: str
    sections: list[Section]
    state: str = ""
    tone: Tone = ""
    seconds: float = 3.0
    """After which the page is asked for again."""


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table whose columns of numbers are known; the first column names its row."""
    columns = [[row[i] for row in rows if row[i]] for i in range(len(heads))]
    numeric = [i > 0 and bool(column) and all(map(is_number, column)) for i, column in enumerate(columns)]
    return Table(title, list(heads), [list(row) for row in rows], numeric)
