"""What must hold for any bytes whatever, in the codec and at a site's exit."""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np

from coterie.errors import BadAnswer, MalformedMessage
from coterie.messages import bodies, codec
from coterie.messages.codec import Decoded, Envelope, Form
from coterie.messages.heads import HEAD_BYTES, Head
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply, Request
from coterie.messages.site_api import Block, Memory
from coterie.messages.verbs import Seen
from coterie.methods.analysis.compare import ClusterRule, LabelTwice
from coterie.methods.edge.sites import SendCenters, SendScatter, SendSubspace, SendSummary, SumByCell, SumReducedCost
from coterie.methods.kernel.baselines import MapFeatures
from coterie.methods.kernel.ce_pca import (
    DrawRows,
    EmbedRows,
    ProjectRows,
    ScoreByLeverage,
    ScoreByResidual,
    SketchFeatures,
)
from coterie.methods.kernel.clusters import SumLengths
from coterie.methods.kernel.dspgd.dense import Expand, KeepRows, Project
from coterie.methods.kernel.dspgd.sites import (
    Advance,
    BeginKernel,
    Multiply,
    ReportFeatureLength,
    SendGram,
    SumFeatures,
)
from coterie.methods.kernel.landmarks.sites import (
    MeanByCell,
    SendFeatureGram,
    SendLandmarks,
    TryLandmarks,
    UseLandmarks,
)
from coterie.methods.kernel.landmarks.summed import (
    CountCells,
    ShareCells,
    SumProjected,
    SumSquaredDistances,
    UseProjection,
)
from coterie.methods.kernel.landmarks.whole_features import ShowFeatures
from coterie.methods.kmeans.federated import Train
from coterie.methods.registry import METHODS, belongs
from coterie.methods.shared import private_choosing, private_sums
from coterie.methods.shared.agreement import Agree, UseColumns
from coterie.methods.shared.alignment import Attend, SendTags
from coterie.methods.shared.choosing import RateCandidates, SumHalves
from coterie.methods.shared.composition import CountByCenter
from coterie.methods.shared.coresets import SampleCoreset, SumCost
from coterie.methods.shared.counts import CountRows, PoolRows
from coterie.methods.shared.halves import CompareHalf
from coterie.methods.shared.limits import ReportMagnitude
from coterie.methods.shared.lloyd import Assign, Close
from coterie.methods.shared.plain import plain
from coterie.methods.shared.preparation import SumColumns
from coterie.methods.shared.prepared import Prepare
from coterie.methods.shared.private_profiles import UseLabelled
from coterie.methods.shared.profiles import CountByCluster, CountByLabel, MeasureColumns, SumByCluster, SumByLabel
from coterie.methods.shared.restarts import AssignEach, CompareStarts
from coterie.methods.shared.shares import LimitShare
from coterie.methods.shared.starts import Split, Summarise
from coterie.methods.shared.whole_rows import ShowWhole
from coterie.methods.vertical.dpca import CountColumns, SendComponents, SolveCopy
from coterie.methods.vertical.profiles import MeasureNames, SendNames
from coterie.methods.vertical.sites import (
    Decompose,
    FindRank,
    MeasureSpread,
    ReportProducts,
    SumDistances,
    SumProducts,
    Treat,
)
from coterie.secure.certificates import SIGNED_BYTES, Compare, Conclude
from coterie.secure.handshake import HELLO_BYTES, SEALED_PART_BYTES, AskHello, Hello, Introduce, ShareKey, keep_keys
from coterie.secure.keys import Context, seal
from coterie.secure.masked_sums import AskMasked, Masked, Reveal, Revealed
from coterie.secure.shamir import SHARE_BYTES
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.identities import identity
from tests.plugins import requests_of

SITE = "clinic"
PATH = "/srv/clinic/patients.parquet"
RUN = bytes(range(100, 116))
COPIES = 3
"""How often each row is there: groups that count rows must not take copies of one for many."""
AVERAGES = Policy(
    per_site_results="averages", min_group=COPIES + 2, min_roster=3, rosters="any", alignment_key=bytes(32)
)
"""Averages of groups may be seen by themselves."""

# Digits enough that neither their text nor their bytes turn up by chance.
VALUES = np.random.default_rng(31415).uniform(1e4, 9e4, (8, 2))
ROWS = np.repeat(VALUES, COPIES, axis=0)
HOLES = np.where(np.arange(ROWS.size).reshape(ROWS.shape) % 17 == 5, np.nan, ROWS)

LIMITS = {"rows": 1000.0, "box": 1e6}

NO_MAP = (np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 0)))
"""Rows as they are."""
TURNED = (np.array([2]), np.full(2, 5e4), np.array([[0.6], [0.8]]))
"""Rows less a point, projected at random, then onto one axis."""


def _rule(k: int) -> bytes:
    """A model of k clusters of both columns."""
    centers = np.arange(1.0, 2 * k + 1).reshape(k, 2) * 1e4
    return msgspec.json.encode(plain(ClusterRule(["x0", "x1"], None, None, centers)))


BY_HAND: tuple[Request[Any], ...] = (
    Assign(np.array([[1e4, 1e4], [9e4, 9e4], [5e4, 2e4]])),
    Assign(VALUES + 1.0),  # every row its own cell
    Close(np.array([[1e4, 1e4], [9e4, 9e4], [5e4, 2e4]])),
    Agree(2, ("x0", "x1"), ("number", "number")),
    Agree(3, ("x1", "x0", "age"), ("number", "text", "number")),
    ReportMagnitude(1, np.zeros(2)),
    ReportMagnitude(2, np.full(2, 5e4)),
    SumColumns(False, np.zeros(2)),
    SumColumns(True, np.full(2, 5e4)),
    Prepare("mean", False, np.full(2, 5e4), np.full(2, 5e4), np.full(2, 2e4), *np.zeros((2, 0))),
    Prepare("refuse", True, np.zeros(2), np.zeros(2), np.full(2, 1e5), *np.zeros((2, 0))),
    UseColumns(("x1", "x0")),
    Prepare("drop", False, np.zeros(2), np.zeros(2), np.ones(2), *np.zeros((2, 0))),
    LimitShare(1e6, 1.0),
    CompareHalf(np.ones((2, 2))),
    MeasureColumns(("x1",), *np.zeros((2, 0)), np.full(1, 5e4)),
    SumByLabel(("x1", "x0"), *np.zeros((2, 0)), 3, np.arange(24) % 3, np.full(2, 5e4)),
    CountByLabel(
        ("x0",), *np.zeros((2, 0)), 4, np.ones(2), np.arange(24) % 2, np.zeros((2, 1)), np.full((2, 1), 9e4)
    ),
    MeasureNames(),
    SendNames(5),
    SumByCluster(("x1", "x0"), *np.zeros((2, 0)), np.full((3, 2), 5e4), np.full(2, 5e4), 3),
    SumByCluster(("x0",), np.full(1, 1e4), np.full(1, 6e4), VALUES, np.zeros(1)),
    CountByCenter(VALUES[:2]),
    CountByCluster(
        ("x0",),
        *np.zeros((2, 0)),
        4,
        np.full(2, 0.5),
        np.array([[1e4, 1e4], [9e4, 9e4]]),
        *np.array([[[1e4]] * 2, [[9e4]] * 2]),
    ),
    SumHalves(7, np.full(2, 5e4), VALUES[:3]),
    RateCandidates(5, np.array([1, 2]), VALUES[:3], VALUES[1:4], VALUES[2:5]),
    Split(1, np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.zeros(2), np.zeros((0, 2))),
    Split(3, np.array([0, 1]), np.array([0, 1]), np.array([5e4, 4e4]), np.full(2, 3e4), np.ones((3, 2))),
    CompareStarts(VALUES[None] + 1.0),
    AssignEach(np.array([VALUES[:2], VALUES[:2] + 1.0])),
    Summarise(2, 2, 100, 1),
    Summarise(3, 2, 20, 2),
    SumCost(2, 2, 1),
    SampleCoreset(4, 2, 2, 1, 0),
    MapFeatures("rbf", 1e-9, 3, 1.0, 6, "phase", 3),
    CountRows(),
    PoolRows(24, 2, 0),
    Project(1, 4, np.ones(24)),
    Expand(1, 24, np.ones(4)),
    KeepRows(np.ones((24, 2))),
    ReportFeatureLength(1),
    SendLandmarks(3, 2, 2, 4, 100, 1),
    SendLandmarks(2, 2, 1, 8, 10, 2),
    UseProjection(3, 1, False),
    SumProjected(1, 2.0, 2),
    SumSquaredDistances(np.full(2, 5e4)),
    CountCells(np.array([[1e4], [7e4]])),
    ShareCells(6, 1, 3, np.array([[1e4], [7e4]]), np.array([9.0, 15.0]), np.zeros(1), np.full(1, 2e5)),
    UseLandmarks("rbf", 1e-9, 3, 1.0, "float32", VALUES[:3] + 9.0, np.eye(3), np.zeros(3)),
    MeanByCell("float16", np.eye(3)),
    TryLandmarks("rbf", 1e-9, 3, 1.0, "float32", VALUES[:3] + 9.0, np.eye(3), np.zeros(3), np.ones((2, 2, 3))),
    SendFeatureGram(10, 4, "float32"),
    SketchFeatures("rbf", 1e-9, 3, 1.0, 6, "phase", 3, 5, 4),
    ScoreByLeverage(np.eye(4)),
    ScoreByResidual(VALUES[:2] + 1.0),
    DrawRows(3, 2, 1, 1, 0),
    ProjectRows(5, 2, 1, VALUES[:2] + 1.0),
    EmbedRows(np.eye(2)),
    SumLengths(2),
    BeginKernel("rbf", 1e-9, 3, 1.0, 6, "phase", 3, "float64"),
    SumFeatures(1, 2.0, 6),
    Multiply(1, 2.0, 1.0, np.zeros(6), np.eye(6)[0]),
    SendGram(1, 2.0, 21, 6, 1.0, np.zeros(6)),
    Advance(1, 1.0, False, np.zeros(6), np.eye(6)[:, :2], np.ones(2)),
    SendSubspace(3, (), *NO_MAP, 2, 2, 1.0),
    SendSubspace(3, ("gaussian",), *TURNED, 1, 1, 9.0),
    SendScatter(3, (), *NO_MAP, 3, 2, 1.0),
    SumReducedCost(3, ("orthogonal",), *TURNED, 2, 1, 9.0),
    SendSummary(3, ("sparse",), *TURNED, 4, 2, 1, 0, 0, 1, "", 0, 9.0),
    SendSummary(3, (), *NO_MAP, 4, 2, 2, 1, 0, 1, "gaussian", 1, 9.0),
    SendCenters(3, ("gaussian",), *TURNED, 2, 1, 100, 9.0),
    SumByCell(3, ("gaussian",), *TURNED, np.array([[-1e4], [3e4]]), 2),
    Attend(False),
    Attend(True),
    SendTags(24, False),
    Treat("mean", "standard"),
    MeasureSpread(),
    FindRank("rbf", 1e-9, 3, 24, 5, 0.5),
    Decompose("rbf", 1e-9, 3, 24, 2, 2, "float64"),
    SumDistances(1e-9, 0, 2, 24, "float32"),
    ReportProducts(0, 2, np.ones((24, 2))),
    SumProducts(0, 2, np.ones((24, 2))),
    CountColumns(),
    LabelTwice(3, 2, _rule(3), _rule(2), np.ones((2, 2)), np.full((2, 2), 1e5)),
    LabelTwice(3, 2, _rule(2), b"{}", np.ones((2, 2)), np.ones((2, 2))),
    SolveCopy(4.0, np.eye(24)[:, :2], np.ones((24, 2))),
    SendComponents(2, np.eye(24)[:, :2]),
    Train(1, 0, 1.0, 0, 0, np.array([[1e4, 1e4], [9e4, 9e4]])),
    Train(2, 5, 0.5, 7, 3, VALUES + 1.0),
    Train(2, 5, 1.0, 7, 3, VALUES + 1.0),
)
"""At least one question of every kind of coterie's own that sites answer from their rows."""


def _plain() -> tuple[Request[Any], ...]:
    """Those, and what methods of other packages ask in a run."""
    known = {type(request) for request in BY_HAND}
    others = [method for method in METHODS.values() if not known.issuperset(method.requests)]
    asked = [request for method in others for request in requests_of(method, ROWS, 2)]
    return (*BY_HAND, *(request for request in asked if type(request) not in known))


PLAIN = _plain()


def envelope(
    request: bytes = bytes(16), *, round: int = 0, method: str = "lloyd", roster: Sequence[str] = (SITE, "other")
) -> Envelope:
    """The envelope of a question to the site."""
    names = codec.roster_digest(roster)
    return Envelope(codec.FORMAT_VERSION, RUN, round, 0, names, codec.site_tag(SITE), request, method)


# ---------------------------------------------------------------- questions that carry others

SECRETS = {SITE: bytes(range(32)), "other": bytes(range(32, 64)), "third": bytes(range(64, 96))}
"""Everybody's own key, the same every time: only so are the same questions valid every time."""
ROSTER = tuple(SECRETS)
UPLOAD_ROUND = 1


def introduction(run: bytes = RUN) -> Introduce:
    """The sites of a run, as they began it: nothing was ordered."""
    hellos = []
    for name, secret in SECRETS.items():
        head = Head(bytes(16), 0, 1, bytes(32))
        head = head._replace(signature=identity(name).sign(head.signed()))
        blank = Hello(identity(name).card(secret), head, False, b"", b"")
        hellos.append(blank._replace(signature=identity(name).sign(blank.signed(run, b""))).to_bytes())
    return Introduce(0, ROSTER, np.array([list(hello) for hello in hellos]))


def masked(request: Request[Any], bits: int = 64, roster: tuple[str, ...] = ROSTER) -> AskMasked:
    """The same question for an answer that nobody sees by itself."""
    body = codec.encode_body(request, LIMITS).data
    return AskMasked(bits, request.layout.numbers, len(roster), roster, body)


@lru_cache(maxsize=2)
def introduced(run: bytes = RUN) -> tuple[bytes, bytes]:
    """The recall that introduces the sites of a run, and the transcript of a site after it."""
    body = codec.encode_body(introduction(run), {}).data
    recall = codec.encode_recall(envelope()._replace(run=run), [body])
    return recall, codec.extend_transcript(codec.NO_TRANSCRIPT, body)


HELLO, INTRODUCE, UPLOAD = AskHello(b"", HELLO_BYTES), introduction(), masked(PLAIN[0])
INTRODUCED = introduced()[1]


def _reveal() -> Reveal:
    """The unmasking of the upload; what the others sealed for the site opens, whatever it holds."""
    sent = envelope(codec.encode_body(UPLOAD, {}).digest, round=UPLOAD_ROUND, roster=ROSTER)
    sealed = [bytes(SHARE_BYTES + 16)]
    for name in ROSTER[1:]:
        peer, memory = _site(name, ROWS), Memory()
        keep_keys(ArrayTable(ROWS), memory, INTRODUCE)
        share = bytes([len(name)] * SHARE_BYTES)
        sealed.append(seal(peer, memory, Context.of(sent), name, SITE).encrypt(bytes(12), share, None))
    return Reveal(len(ROSTER), UPLOAD_ROUND, 0, ROSTER, np.array([list(one) for one in sealed]))


# ---------------------------------------------------------------- frames


def method_of(request: Request[Any]) -> str:
    """A method that may ask this."""
    return next((name for name in METHODS if belongs(request.subject, name)), "lloyd")


def question(request: Request[Any], limits: dict[str, float], seen: Seen = Seen.SINGLE) -> bytes:
    """A request on its way to the site, under a method that may ask it."""
    body, script = codec.encode_body(request, limits), codec.NO_TRANSCRIPT
    said = envelope(body.digest, method=method_of(request))
    if isinstance(request, AskMasked | Reveal):
        round = UPLOAD_ROUND + isinstance(request, Reveal)
        said, script = said._replace(round=round, roster=codec.roster_digest(request.roster)), INTRODUCED
    return codec.encode_question(said, body, script, seen)


def questions() -> list[bytes]:
    """A valid question of every kind, and recalls."""
    frames, remembered = [], []
    for number, request in enumerate(SAMPLES):
        limits, seen = LIMITS if number % 2 and number < len(PLAIN) else {}, Seen(number % 3)
        frames.append(question(request, limits, seen))
        if request.remembered:
            body = codec.encode_body(request, limits)
            after = codec.extend_transcript(codec.NO_TRANSCRIPT, body.data)
            assign = codec.encode_body(SAMPLES[0], {})
            frames.append(codec.encode_question(envelope(assign.digest, round=1), assign, after, seen))
            remembered.append(body.data)
    return [*frames, *(codec.encode_recall(envelope(), bodies) for bodies in ([], remembered, remembered[-1:]))]


def answers() -> list[bytes]:
    """A valid answer of every kind that is the same every time, and every refusal."""
    frames = [new_site(ROWS).answer(question(request, {})) for request in (*PLAIN, HELLO, INTRODUCE)]
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
    for request in (*PLAIN, HELLO, INTRODUCE, UPLOAD, SAMPLES[-1])[len(data) % 12 :: 12]:
        layout = request.layout
        try:
            found = codec.decode_answer(data, said, layout, layout.bounds(LIMITS))
        except BadAnswer as problem:
            _check_harmless(str(problem).encode())
        else:
            assert type(found) in (Refusal, layout.reply)
            assert not isinstance(found, Reply) or all(np.isfinite(a).all() for a in found.arrays())
    with contextlib.suppress(MalformedMessage):
        bodies.unpack_arrays(data)


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
    new: ArrayTable

    def raw_blocks(self) -> Iterator[Block]:
        """The rows, unless they were asked for too often."""
        self.passes += 1
        if self.passes > self.patience:
            raise RuntimeError("nobody needs the rows so often")
        return super().raw_blocks()


def _site(name: str, rows: np.ndarray, policy: Policy = AVERAGES) -> Site:
    log = logging.Logger("fuzz")
    log.addHandler(logging.NullHandler())
    table = ImpatientTable(rows, name=PATH, keys=range(len(rows)))
    table.new = ArrayTable(rows[:6] + 1.0, name=PATH, keys=range(6))
    with patch("secrets.token_bytes", lambda n: bytes(range(n))):  # the identity of the ledger is in a hello
        site = Site(name, table, policy=policy, log=log, identity=identity(name))
    site.masking_key = SECRETS[name]
    return site


NOISE = 5, 1, 40
"""Sites, how many of them may drop out, bits of the ring."""
NOISY: tuple[Request[Any], ...] = (
    ShowWhole(1.0, 1.0, np.zeros(2), np.zeros(0), np.zeros((0, 0))),
    ShowFeatures("rbf", 1e-9, 1.0, 0.1, np.zeros(2), VALUES[:3] + 9.0, np.eye(3), np.zeros(3)),
    private_sums.SumRows(*NOISE, np.full(3, 1e4), 2, 100),
    private_sums.SumWholeColumns(*NOISE, np.full(3, 1e4), 1, 2, 100),
    private_sums.SumMarks(*NOISE, np.full(2, 1e4), 1, 2, 100),
    private_sums.SumProducts(*NOISE, np.full(1, 1e4), 3, 100, 1.0, np.zeros(2)),
    private_sums.SumByCell(*NOISE, np.full(2, 1e4), 100, VALUES[:2]),
    private_sums.MeasureCost(*NOISE, np.full(1, 1e4), 100, VALUES[:2]),
    private_choosing.SumHalfCells(*NOISE, np.full(2, 1e4), 100, 3, VALUES[:2]),
    private_choosing.SumSilhouettes(*NOISE, np.full(1, 1e4), 100, np.array([2, 1]), VALUES[:3]),
    private_choosing.CountPairs(*NOISE, np.full(1, 1e4), VALUES[:2], VALUES[1:3]),
    private_sums.CountInBins(*NOISE, np.full(1, 1e4), 1, 2, 5),
    UseLabelled(("x0", "x1"), VALUES[:2]),
)
"""Of private runs, to a site that takes part in none."""
SAMPLES: tuple[Request[Any], ...] = (
    *PLAIN,
    *NOISY,
    HELLO,
    INTRODUCE,
    Compare(np.ones((2, HEAD_BYTES))),
    ShareKey(ROSTER, np.ones((len(ROSTER), SEALED_PART_BYTES))),
    Conclude(SIGNED_BYTES),
    *(masked(request) for request in PLAIN),
    masked(PLAIN[0], bits=24),
    masked(PLAIN[0], roster=ROSTER[:2]),
    _reveal(),
)
"""At least one question of every kind."""


def new_site(rows: np.ndarray, policy: Policy = AVERAGES) -> Site:
    """A site that lets everything but rows be seen by itself, and logs nothing anywhere."""
    return _site(SITE, rows, policy)


def acquainted_site(rows: np.ndarray, policy: Policy = AVERAGES, *, has_uploaded: bool = True) -> Site:
    """A site that knows the others of the roster, and has uploaded a masked answer that may now be unmasked."""
    site = new_site(rows, policy)
    site.answer(introduced()[0])
    if has_uploaded:
        assert isinstance(answered(site, question(UPLOAD, {})), Masked)
    return site


def fuzz_site(data: bytes) -> list[Reply | Refusal]:
    """Whatever arrives at a new site, with and without missing values, and at one that knows others; asked twice."""
    decoded, sites = _decoded(data), [new_site(ROWS), new_site(HOLES)]
    if decoded is not None and isinstance(decoded.request, AskMasked | Reveal):
        sites.append(acquainted_site(ROWS, has_uploaded=isinstance(decoded.request, Reveal)))
    found = []
    for site in sites:
        found.append(answered(site, data))
        if isinstance(found[-1], Reply):
            assert site.answer(data) == site.answer(data)
        answered(site, data)
    return found


def shown_table(site: Site) -> Any:
    """The rows as they are, where the site's policy shows them."""
    return site._tables.get("none")


def answered(site: Site, data: bytes) -> Reply | Refusal:
    """What the site makes of ``data``, once it is found to be an answer or a refusal and to give nothing away."""
    table = shown_table(site)
    if table is not None:
        table.passes = 0
    frame = site.answer(data)
    assert isinstance(frame, bytes)
    decoded = _decoded(data)
    found = _read_answer(frame, decoded)
    _check_harmless(frame)
    if isinstance(found, Reply) and not isinstance(found, Revealed | Masked) and site.policy.protection == "groups":
        _check_counts(found, site.policy.min_group)
    if isinstance(found, Masked):
        _check_masked(found, decoded, site.policy.min_roster)
    if isinstance(found, Revealed):
        _check_revealed(found, decoded)
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


def _check_counts(found: Reply, fewest: int) -> None:
    """Whatever is sent stands for enough rows, or for none."""
    for name in ("counts", "sizes"):
        counts = np.atleast_1d(getattr(found, name, np.zeros(0)))
        if counts.dtype.kind == "f":
            assert ((counts == 0) | (counts >= fewest)).all(), f"{name} of {counts} left the site"


def _check_masked(found: Masked, decoded: Decoded | None, fewest: int) -> None:
    """Enough sites hide the numbers, and none stands there as it is: a masked nothing would be 0."""
    assert decoded is not None
    assert isinstance(decoded.request, AskMasked)
    assert decoded.request.n >= fewest
    if decoded.request.bits >= 48:
        assert found.numbers.all()
        assert len({*found.numbers.tolist()}) == len(found.numbers)


def _check_revealed(found: Revealed, decoded: Decoded | None) -> None:
    """A share of every other site's own mask, and none of one's own."""
    assert decoded is not None
    assert isinstance(decoded.request, Reveal)
    assert [bool(share.any()) for share in found.shares] == [name != SITE for name in decoded.request.roster]


def _row_texts() -> tuple[bytes, ...]:
    texts = [f"{value:.3f}"[:7].encode() for value in VALUES.ravel()]
    return (*texts, b"patients", b"/srv/", b"Traceback")


def _row_bytes() -> tuple[bytes, ...]:
    numbers = [struct.pack(form, value) for value in VALUES.ravel() for form in ("<d", "<f", ">d", ">f")]
    return (*numbers, *SECRETS.values())


ROW_TEXTS, ROW_BYTES = _row_texts(), _row_bytes()


def _check_harmless(frame: bytes) -> None:
    """No row's value, as text or as number, no key and no path is in what leaves."""
    for text in ROW_TEXTS:
        assert text not in frame, f"{text!r} left the site"
    for value in ROW_BYTES:
        assert value not in frame, f"the number {value!r} left the site"
