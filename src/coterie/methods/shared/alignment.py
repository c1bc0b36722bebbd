"""Rows of the same people or moments at several sites, brought into one order; the server learns nobody's key.

Every site tags the key of each row with the sites' common secret and orders its rows by tag. The server sees
the tags: whether the sites hold the same rows and, if not, how many differ. Without keys rows go by their place.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError, MalformedMessage, Unaligned
from coterie.messages.schema import Floats, Integers, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, keys_of, new_rows_of, remembers
from coterie.messages.verbs import Protocol, each

Tags = npt.NDArray[np.uint64]

TAG_BYTES = 8
SHOWN_SITES = 4
ORDERS = {False: "order of rows", True: "order of new rows"}
"""Where a site's memory keeps in which order rows are taken, if not as they lie."""


class Attendance(Reply, content="rows"):
    """How many rows a site holds, and whether they have keys or weights; for sites that take part with their rows."""

    held: Floats = array(nonnegative=True)
    keyed: Integers = array(dtype="uint1")
    weighted: Integers = array(dtype="uint1")


class Attend(Request[Attendance], doing="counting the sites' rows and keys"):
    """How many rows do you hold, or, if ``new``, how many came later? Have they keys?"""

    new: bool


class RowTags(Reply, content="rows"):
    """A tag for every row, in order."""

    tags: Tags = array("rows", dtype="uint64")


class SendTags(Request[RowTags], remembered=True, doing="matching rows by tag"):
    """Order your ``rows`` rows (or the new ones) by their tags from now on, and send these."""

    rows: int
    new: bool


def row_tags(keys: Iterable[object], alignment_key: bytes) -> Tags:
    """The 64-bit tag of every key: the first bytes of its HMAC-SHA256 under the sites' secret.

    Keys are compared as text without spaces around it, letters composed (NFC), whole numbers without a fraction.
    """
    if not isinstance(alignment_key, bytes):
        raise InputError("an alignment_key must be bytes; `coterie policy secret` prints one in base64.")
    digests = (hmac.digest(alignment_key, _spelt(key).encode(), hashlib.sha256)[:TAG_BYTES] for key in keys)
    return np.frombuffer(b"".join(digests), "<u8")


def _spelt(key: object) -> str:
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    return unicodedata.normalize("NFC", str(key)).strip()


def subject(table: Table, new: bool) -> Table:
    """The table a question is about."""
    if not new:
        return table
    new_rows = new_rows_of(table)
    if new_rows is None:
        raise Unaligned("there are no new rows here")
    return new_rows


def _tags(table: Table, memory: Memory, ask: SendTags) -> Tags:
    keys = keys_of(subject(table, ask.new))
    if keys is None:
        raise Unaligned("the rows here have no keys")
    if memory.alignment_key is None:
        raise Unaligned("there is no alignment_key in this site's policy to tag keys with")
    if len(keys) != ask.rows:
        raise MalformedMessage(f"asked for {ask.rows} tags, there are {len(keys)} rows")
    return row_tags(keys, memory.alignment_key)


@answers(Attend)
def local_attendance(table: Table, memory: Memory, ask: Attend) -> Attendance:
    about = subject(table, ask.new)
    is_weighted = any(block.weights is not None for block in about.raw_blocks())
    return Attendance(*map(np.asarray, (float(about.n_rows), int(keys_of(about) is not None), int(is_weighted))))


@remembers(SendTags)
def keep_order(table: Table, memory: Memory, ask: SendTags) -> None:
    """From now on rows are taken in the order of their tags."""
    memory[ORDERS[ask.new]] = np.argsort(_tags(table, memory, ask), kind="stable")


@answers(SendTags)
def local_tags(table: Table, memory: Memory, ask: SendTags) -> RowTags:
    """The tags, smallest first."""
    return RowTags(np.sort(_tags(table, memory, ask)))


@dataclass(frozen=True)
class Alignment:
    """The rows all sites hold: how many, and their tags in order where they have keys."""

    n_rows: int
    tags: Tags | None


def align(*, new: bool = False) -> Protocol[Alignment]:
    """Make sure that all sites hold the same rows, in one order; ``Unaligned`` says how many differ, never which.

    One round, and another one for tags where rows have keys.
    """
    met = yield from each(Attend(new), complete=True)
    sizes = {name: round(float(reply.held)) for name, reply in met.items()}
    if any(int(reply.weighted) for reply in met.values()):
        raise InputError(
            "a site has weighted rows; where columns are split between sites, every row must count once."
        )
    if not any(sizes.values()):
        raise InputError(f"the sites hold no {'new ' if new else ''}rows.")
    keyed = [name for name, reply in met.items() if int(reply.keyed)]
    if not keyed:
        return Alignment(_by_place(sizes), None)
    if len(keyed) < len(met):
        without = next(name for name in met if name not in keyed)
        raise Unaligned(f"rows have keys at {listed(keyed)} but not at {without}; give all tables a key, or none.")
    tags = yield from each({name: SendTags(size, new) for name, size in sizes.items()}, complete=True)
    return _by_tags({name: reply.tags for name, reply in tags.items()})


def _by_place(sizes: Mapping[str, int]) -> int:
    if len(set(sizes.values())) > 1:
        parts = [f"{name} has {size}" for name, size in sizes.items()]
        raise Unaligned(
            f"without a key column rows are matched by position, but the sites hold different numbers of rows: "
            f"{listed(parts)}. Name a key column that all tables have."
        )
    return next(iter(sizes.values()))


def _by_tags(tags: Mapping[str, Tags]) -> Alignment:
    twice = {name: len(own) - len(np.unique(own)) for name, own in tags.items()}
    if any(twice.values()):
        parts = [f"{many} of {len(tags[name])} at {name}" for name, many in twice.items() if many]
        raise Unaligned(f"every row needs a key of its own; rows that repeat a key: {listed(parts)}.")
    common = np.sort(next(iter(tags.values())))
    for own in tags.values():
        common = np.intersect1d(common, own, assume_unique=True)
    apart = {name: len(own) - len(common) for name, own in tags.items()}
    if any(apart.values()):
        parts = [f"{many} of {len(tags[name])} at {name}" for name, many in apart.items()]
        raise Unaligned(
            f"the sites do not hold the same rows. Rows that are not at every site: {listed(parts)}. Check that all "
            "sites use the same alignment_key and spell keys alike, or keep only the rows that all sites hold."
        )
    return Alignment(len(common), common)


def listed(parts: list[str]) -> str:
    """The first few, and how many more there are."""
    return ", ".join(parts[:SHOWN_SITES]) + (
        f" and {len(parts) - SHOWN_SITES} more" if len(parts) > SHOWN_SITES else ""
    )
