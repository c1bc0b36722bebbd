"""What must hold for any bytes whatever, in the codec and at a site's exit."""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from coterie.errors import BadAnswer, MalformedMessage
from coterie.messages import codec
from coterie.messages.codec import Decoded, Envelope, Form
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply, Request
from coterie.messages.site_part import Block
from coterie.messages.verbs import Seen
from coterie.protocols.federated_kmeans import Train
from coterie.protocols.lloyd import Assign
from coterie.protocols.methods import METHODS, belongs
from coterie.protocols.preparation import Agree, Prepare, SumColumns
from coterie.protocols.seeding import Split, Summarise
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable

SITE = "clinic"
PATH = "/srv/clinic/patients.parquet"
RUN = bytes(range(100, 116))
COPIES = 3
"""How often each row is there, so that no sum over a cell is a row itself."""

# Digits enough that neither their text nor their bytes turn up by chance.
VALUES = np.random.default_rng(31415).uniform(1e4, 9e4, (8, 2))
ROWS = np.repeat(VALUES, COPIES, axis=0)
HOLES = np.where(np.arange(ROWS.size).reshape(ROWS.shape) % 17 == 5, np.nan, ROWS)

LIMITS = {"rows": 1000.0, "box": 1e6}

SAMPLES: tuple[Request[Any], ...] = (
    Assign(np.array([[1e4, 1e4], [9e4, 9e4], [5e4, 2e4]])),
    Assign(VALUES + 1.0),  # every row its own cell
    Agree(2, ("x0", "x1"), ("number", "number")),
    Agree(3, ("x1", "x0", "age"), ("number", "text", "number")),
    SumColumns(False, np.zeros(2)),
    SumColumns(True, np.full(2, 5e4)),
    Prepare("mean", False, np.full(2, 5e4), np.full(2, 5e4), np.full(2, 2e4)),
    Prepare("refuse", True, np.zeros(2), np.zeros(2), np.full(2, 1e5)),
    Prepare("drop", False, np.zeros(2), np.zeros(2), np.ones(2)),
    Split(1, np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.zeros(2)),
    Split(3, np.array([0, 1]), np.array([0, 1]), np.array([5e4, 4e4]), np.full(2, 3e4)),
    Summarise(2, 2, 5, 100, 1),
    Summarise(3, 2, 4, 20, 2),
    Train(1, 0, 1.0, 0, 0, np.array([[1e4, 1e4], [9e4, 9e4]])),
    Train(2, 5, 0.5, 7, 3, VALUES + 1.0),
)
"""At least one question of every kind."""


def envelope(request: bytes = bytes(16), *, round: int = 0, method: str = "lloyd") -> Envelope:
    """The envelope of a question to the site."""
    roster = codec.roster_digest([SITE, "other"])
    return Envelope(codec.FORMAT_VERSION, RUN, round, 0, roster, codec.site_tag(SITE), request, method)


def question(request: Request[Any], limits: dict[str, float], seen: Seen = Seen.SINGLE) -> bytes:
    """A request on its way to the site, under a method that may ask it."""
    body = codec.encode_body(request, limits)
    method = next(name for name in METHODS if belongs(type(request), name))
    return codec.encode_question(envelope(body.digest, method=method), body, codec.NO_TRANSCRIPT, seen)


def questions() -> list[bytes]:
    """A valid question of every kind, and recalls."""
    frames, remembered = [], []
    for number, request in enumerate(SAMPLES):
        limits, seen = LIMITS if number % 2 else {}, Seen(number % 3)
        frames.append(question(request, limits, seen))
        if request.remembered:
            body = codec.encode_body(request, limits)
            after = codec.extend_transcript(codec.NO_TRANSCRIPT, body.data)
            assign = codec.encode_body(SAMPLES[0], {})
            frames.append(codec.encode_question(envelope(assign.digest, round=1), assign, after, seen))
            remembered.append(body.data)
    return [*frames, codec.encode_recall(envelope(), []), codec.encode_recall(envelope(), remembered)]


def answers() -> list[bytes]:
    """A valid answer of every kind, and every refusal."""
    frames = [new_site(ROWS).answer(question(request, {})) for request in SAMPLES]
    return [*frames, *(codec.encode_refusal(envelope(), code) for code in Refusal)]


def corpus() -> list[bytes]:
    """Valid frames of every form and kind, questions more often: there is more in them to get wrong."""
    return 4 * questions() + answers()


# ---------------------------------------------------------------- the codec


def fuzz_one(data: bytes) -> None:
    """Any bytes are a message or one clear error, for whoever reads them."""
    try:
        decoded = codec.decode_question(data)
    except MalformedMessage:
        pass
    else:
        assert decoded.envelope.version == codec.FORMAT_VERSION
        for body in decoded.bodies:
            _read_body(body)
    _read_body(data)
    said = _said(data) or envelope()
    for request in SAMPLES[:: 1 + len(data) % 3]:
        layout = request.layout
        try:
            found = codec.decode_answer(data, said, layout, layout.bounds(LIMITS))
        except BadAnswer as problem:
            _check_harmless(str(problem).encode())
        else:
            assert type(found) in (Refusal, layout.reply)
            assert not isinstance(found, Reply) or all(np.isfinite(a).all() for a in found.arrays())
    with contextlib.suppress(MalformedMessage):
        codec.unpack_arrays(data)


def _read_body(data: bytes) -> None:
    try:
        request, limits = codec.decode_body(data)
    except MalformedMessage:
        return
    assert request is None or codec.encode_body(request, limits).data
    assert all(np.isfinite(limit) and limit > 0 for limit in limits.values())


def _said(data: bytes) -> Envelope | None:
    try:
        return codec.read_envelope(data)[1]
    except MalformedMessage:
        return None


# ---------------------------------------------------------------- the exit


class ImpatientTable(ArrayTable):
    """Counts how often its rows are gone through, and stops whoever does so for ever."""

    passes = 0
    patience = 500

    def raw_blocks(self) -> Iterator[Block]:
        """The rows, unless they were asked for too often."""
        self.passes += 1
        if self.passes > self.patience:
            raise RuntimeError("nobody needs the rows so often")
        return super().raw_blocks()


def new_site(rows: np.ndarray) -> Site:
    """A site of one owner, where everything is allowed and nothing is logged anywhere."""
    log = logging.Logger("fuzz")
    log.addHandler(logging.NullHandler())
    return Site(SITE, ImpatientTable(rows, name=PATH), policy=Policy.simulation(), log=log)


def fuzz_site(data: bytes) -> None:
    """Whatever arrives at a new site, with and without missing values, first and once more."""
    for rows in (ROWS, HOLES):
        site = new_site(rows)
        first = answered(site, data)
        if isinstance(first, Reply):
            assert site.answer(data) == site.answer(data)
        answered(site, data)


def answered(site: Site, data: bytes) -> Reply | Refusal:
    """What the site makes of ``data``, once it is found to be an answer or a refusal and to give nothing away."""
    if isinstance(site.table, ImpatientTable):
        site.table.passes = 0
    frame = site.answer(data)
    assert isinstance(frame, bytes)
    decoded = _decoded(data)
    found = _read_answer(frame, decoded)
    _check_harmless(frame, is_average=_may_be_a_row(decoded) and isinstance(found, Reply))
    return found


def _decoded(data: bytes) -> Decoded | None:
    try:
        return codec.decode_question(data)
    except MalformedMessage:
        return None


def _read_answer(frame: bytes, decoded: Decoded | None) -> Reply | Refusal:
    form, said, start = codec.read_envelope(frame)
    assert form in (Form.ANSWER, Form.REFUSAL)
    assert said.site == codec.site_tag(SITE)
    if form is Form.REFUSAL:
        assert len(frame) == start + 1
        return Refusal(frame[start])
    assert decoded is not None, "what cannot be read cannot be answered"
    asked = decoded.envelope
    assert said._replace(roster=b"", method="") == asked._replace(roster=b"", method="")  # see Site: a resend
    if decoded.form is Form.RECALL:
        layout, bounds = codec.EMPTY_LAYOUT, ()
    else:
        assert decoded.request is not None
        layout = decoded.request.layout
        bounds = layout.bounds(decoded.limits)
    return codec.decode_answer(frame, said, layout, bounds)


def _may_be_a_row(decoded: Decoded | None) -> bool:
    """Whether the average asked for may be over copies of one row: the asker then chose a small ``min_count``."""
    request = None if decoded is None else decoded.request
    return isinstance(request, Summarise) and request.min_count <= COPIES


def _row_texts() -> tuple[bytes, ...]:
    texts = [f"{value:.3f}"[:7].encode() for value in VALUES.ravel()]
    return (*texts, b"patients", b"/srv/", b"Traceback")


def _row_bytes() -> tuple[bytes, ...]:
    return tuple(struct.pack(form, value) for value in VALUES.ravel() for form in ("<d", "<f", ">d", ">f"))


ROW_TEXTS, ROW_BYTES = _row_texts(), _row_bytes()


def _check_harmless(frame: bytes, *, is_average: bool = False) -> None:
    """No row's value, as text or as number, and no path is in what leaves."""
    for text in ROW_TEXTS:
        assert text not in frame, f"{text!r} left the site"
    if not is_average:
        for value in ROW_BYTES:
            assert value not in frame, f"the number {value!r} left the site"
