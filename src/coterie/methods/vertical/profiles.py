"""What is in clusters of rows whose columns are at several sites: each site sums up its own columns by label."""

from __future__ import annotations

import numpy as np

from coterie.arrays import Integers
from coterie.errors import MalformedMessage
from coterie.messages.schema import Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, unprepared
from coterie.messages.verbs import Protocol, each
from coterie.methods.shared.cluster_profiles import PHASE, ByLabels, Profile, joined, profiled

BETWEEN = "\n"
"""What separates names."""


class NameSize(Reply, content="schema"):
    """How many bytes the names of a site's columns take."""

    size: Integers = array(dtype="uint32")


class MeasureNames(Request[NameSize], doing="asking for the names of the columns"):
    """How many bytes do the names of your columns take?"""


class ColumnNames(Reply, content="schema"):
    """The names of a site's columns, as text."""

    text: Integers = array("size", dtype="uint8")


class SendNames(Request[ColumnNames], doing="asking for the names of the columns"):
    """What are your columns called?"""

    size: int


def _names(table: Table) -> bytes:
    return BETWEEN.join(column.name for column in unprepared(table).columns).encode()


@answers(MeasureNames)
def local_name_size(table: Table, memory: Memory, ask: MeasureNames) -> NameSize:
    return NameSize(np.asarray(len(_names(table))))


@answers(SendNames)
def local_names(table: Table, memory: Memory, ask: SendNames) -> ColumnNames:
    text = _names(table)
    if len(text) != ask.size:
        raise MalformedMessage(f"names of {ask.size} bytes; they take {len(text)}")
    return ColumnNames(np.frombuffer(text, np.uint8))


def label_profile(labels: Integers, n_clusters: int) -> Protocol[Profile]:
    """The profile of clusters by all sites' columns, ``site.column``; every site learns the cluster of each row."""
    sizes = yield from each(MeasureNames(), complete=True, phase=PHASE)
    asks = {site: SendNames(int(reply.size)) for site, reply in sizes.items()}
    replies = yield from each(asks, complete=True, phase=PHASE)
    parts = {}
    for site, reply in replies.items():
        names = reply.text.astype(np.uint8).tobytes().decode(errors="replace").split(BETWEEN)
        parts[site] = yield from profiled(ByLabels(tuple(names), None, {site: labels}, n_clusters), names)
    return joined(parts)
