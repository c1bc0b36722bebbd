"""Under noise a site answers private questions, questions about columns, and preparation that no row can spoil.

Every request that coterie knows is put to a site that accepted a private order, under every method: by itself,
masked, and in a recall. The server is changed: nothing checks that the ordered method asks it now.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import coterie
from coterie import FederatedKMeans
from coterie.errors import InputError, RunError
from coterie.estimators.registry import KINDS as ESTIMATORS
from coterie.maths.accounting import epsilon_of, mu_of
from coterie.messages import codec
from coterie.messages.contributions import CONTRIBUTIONS, PrivateRequest
from coterie.messages.refusals import Refusal
from coterie.messages.schema import _KINDS, Nothing, Request, message_fields, reply_type
from coterie.messages.site_api import CARRIERS, Units
from coterie.methods.method import PREPARATION, ClusterSettings, ComponentSettings, PrivateSettings
from coterie.methods.registry import METHODS
from coterie.methods.shared.agreement import Agree, UseColumns
from coterie.methods.shared.prepared import Prepare
from coterie.methods.shared.privacy import DELTA, Privacy
from coterie.methods.shared.private_profiles import UseLabelled
from coterie.methods.shared.private_sums import SumByCell, SumRows
from coterie.methods.shared.shares import LimitShare
from coterie.methods.shared.whole_rows import ShowWhole
from coterie.secure.handshake import HELLO_BYTES, REPORT_BYTES, AskHello, SiteHello
from coterie.secure.masked_sums import AskMasked
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable, fingerprint
from coterie.sites.views import noise
from tests.attacks.asker import Asker
from tests.federations import blobs, split_evenly
from tests.orders import an_order, signed

METHOD = "federated-kmeans"
ROWS = blobs(40, 2)
RANGES = ([-20.0, -20.0], [20.0, 20.0])
OPEN = Policy(
    protection="noise", privacy=PrivacyRules(epsilon=8.0), per_site_results="rows", verification="off", min_roster=1
)
LIMITS = {"rows": 1e6, "box": 1e6}
KINDS = {
    kind.kind: kind
    for kind in _KINDS.values()
    if kind.__module__.startswith("coterie.") and kind is not PrivateRequest
}
SAFE = {Agree, UseColumns, Prepare, ShowWhole, UseLabelled}
"""What is answered besides private questions: columns, and which are used; preparation, if no row is refused."""


def blank(kind: type[Request[Any]]) -> Request[Any]:
    """A request of a kind, every array one long on every axis."""
    values: list[Any] = []
    for item in message_fields(kind):
        if item.array is not None:
            shape = tuple(1 if isinstance(axis, str) else axis for axis in item.array.axes)
            values.append(np.ones(shape))
        else:
            values.append({int: 1, float: 1.0, str: "float64", bool: False, bytes: b""}.get(item.type, ()))
    return kind(*values)


def begun(privacy: dict[str, Any] | None = None, policy: Policy = OPEN, table: Any = None) -> Asker:
    """A site that accepted a private order; the run's noise is the site's own."""
    asker = Asker.of(ArrayTable(ROWS, columns=["a", "b"]) if table is None else table, policy, method=METHOD)
    asked = {"privacy": Privacy(**({"epsilon": 1.0} if privacy is None else privacy))}
    order = an_order(METHOD, asked, run=asker.run.hex(), ranges=RANGES)
    hello = asker.ask(AskHello(signed(order).to_bytes(), HELLO_BYTES + REPORT_BYTES + 2), {})
    assert isinstance(hello, SiteHello), hello
    return asker


def put(asker: Asker, request: Request[Any], how: str) -> Any:
    """What becomes of a request, asked by itself, masked with nobody else, or in a recall."""
    if how == "alone":
        return asker.ask(request, LIMITS)
    if how == "recalled":
        return asker.recall([*_before(asker), request])
    body = codec.encode_body(request, LIMITS)
    return asker.ask(AskMasked(request.ring or 64, request.layout.numbers, 1, ("here",), body.data), {})


def _before(asker: Asker) -> list[Request[Any]]:
    return [one for raw in asker.remembered if (one := codec.decode_body(raw)[0]) is not None]


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        (how, name)
        for name, kind in KINDS.items()
        for how in ("alone", "masked", "recalled")
        if kind not in CARRIERS and (kind.remembered or how != "recalled")
    ],
)
def test_every_request_there_is_under_every_method(how, kind):
    """The same becomes of it at a site without rows."""
    request, askers = blank(KINDS[kind]), [begun(), begun(table=ArrayTable(np.zeros((0, 2)), columns=["a", "b"]))]
    first = list(askers[0].remembered)
    for method in METHODS:
        for asker in askers:
            asker.method, asker.remembered = method, list(first)
        found, empty = (put(asker, request, how) for asker in askers)
        assert found == empty if isinstance(found, Refusal) else type(found) is type(empty)
        if not (type(request) in SAFE and (request.tells_nothing or type(request) is Agree)):
            assert isinstance(found, Refusal), (kind, method)  # a private one that was shown no whole rows, too


def test_all_kinds_of_requests_are_looked_at():
    assert {kind for m in METHODS.values() for kind in (*PREPARATION, *m.requests)} <= set(KINDS.values())
    assert set(CONTRIBUTIONS) <= set(KINDS.values())
    for kind in KINDS.values():
        assert (reply_type(kind).content == "noisy") == (kind in CONTRIBUTIONS)


def prepare(missing: str = "mean", *, bounded: bool = False, ranged: bool = True) -> Prepare:
    low, high = (np.array(end) for end in RANGES) if ranged else np.zeros((2, 0))
    return Prepare(missing, bounded, np.zeros(2), np.zeros(2), np.ones(2), low, high)


@pytest.mark.parametrize("how", ["alone", "recalled"])
def test_preparation_that_a_row_could_spoil_is_refused(how):
    assert not isinstance(put(begun(), prepare(), how), Refusal)
    assert not isinstance(put(begun(), prepare("drop"), how), Refusal)
    for spoilt in (prepare("refuse"), prepare("keep"), prepare(bounded=True), prepare(ranged=False)):
        assert put(begun(), spoilt, how) is Refusal.NOT_PRIVATE
    assert put(begun(), LimitShare(40.0, 0.5), how) is Refusal.NOT_PRIVATE


@pytest.mark.parametrize("row", [[np.nan, np.inf], [-np.inf, 3.4e38], [3.4e38, -3.4e38], [0.0, 0.0]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_preparation_is_refused_for_one_row(row, dtype):
    """Scales that overflow for some rows would tell of them."""
    widest, found = np.full(2, 3e38), []
    for scale in (1e-300, 1e-45, 1.0, 1e300):
        asked = Prepare("drop", False, np.zeros(2), -widest, np.full(2, scale), -widest, widest)
        for rows in (np.zeros((0, 2)), np.array([row])):
            table = ArrayTable(rows.astype(dtype), columns=["a", "b"])
            with np.errstate(all="ignore"):
                found.append(begun(table=table).ask(asked, LIMITS))
        assert type(found[-1]) is type(found[-2]), scale


def test_without_a_private_order_there_is_no_answer_at_all():
    table = ArrayTable(ROWS, columns=["a", "b"])
    for parameters in ({}, {"privacy": None}):
        asker = Asker.of(table, OPEN, method=METHOD)
        order = an_order(METHOD, parameters, run=asker.run.hex())
        hello = AskHello(signed(order).to_bytes(), HELLO_BYTES + REPORT_BYTES + 2)
        assert asker.ask(hello, {}) is Refusal.NOT_PRIVATE
    asker = Asker.of(table, OPEN, method=METHOD)
    assert asker.ask(Agree(2, ("a", "b"), ("number", "number"))) is Refusal.NOT_PRIVATE
    assert asker.ask(ShowWhole(1.0, 1.0, np.zeros(2), np.zeros(0), np.zeros((0, 0)))) is Refusal.NOT_PRIVATE


def show() -> ShowWhole:
    return ShowWhole(0.01, 1.0, np.zeros(2), np.zeros(0), np.zeros((0, 0)))


def moments(sites: int = 1, tolerated: int = 0, variance: float = 1e4, reach: int = 100) -> SumRows:
    return SumRows(sites, tolerated, 64, np.array([variance, variance * reach**2, variance * reach**4]), 2, reach)


def test_what_one_site_adds_is_not_seen_alone_where_its_noise_is_not_enough():
    asker = begun()
    assert asker.ask(show()) == Nothing()
    assert asker.ask(moments(sites=2)) is Refusal.NOT_PRIVATE
    assert not isinstance(asker.ask(moments()), Refusal)


def test_a_question_tolerates_as_many_sites_as_the_order():
    asker = begun({"epsilon": 1.0, "tolerated": 1})
    assert asker.ask(show()) == Nothing()
    assert asker.ask(moments(sites=1, tolerated=0)) is Refusal.NOT_ORDERED
    assert not isinstance(asker.ask(moments(sites=2, tolerated=1)), Refusal)


def test_a_run_takes_no_more_than_was_ordered_and_the_table_no_more_than_its_budget():
    asker, spent = begun(), 0.0
    assert asker.ask(show()) == Nothing()
    question = moments(variance=2e3)
    while not isinstance(found := asker.ask(question), Refusal):
        spent += question.mu_squared
        question = replace(question, reach=question.reach - 1)
    assert found is Refusal.NOT_ORDERED
    assert 0.9 < epsilon_of(math.sqrt(spent), DELTA) <= 1.0
    assert asker.ask(moments(variance=64.0)) is Refusal.NOT_ORDERED
    assert asker.site.ledger.charged("table") <= mu_of(1.0, DELTA) ** 2


def test_the_rows_of_one_person_cost_their_number_squared():
    table = ArrayTable(ROWS, columns=["a", "b"])
    table.units = Units("patient", np.arange(len(ROWS)) // 10)
    costs = {}
    for name, privacy, rules in (
        ("rows", {}, PrivacyRules(8.0)),
        ("people of the order", {"unit": "patient", "rows_per_unit": 3}, PrivacyRules(8.0)),
        ("one row of each person", {"unit": "patient"}, PrivacyRules(8.0)),
        ("people of the site", {}, PrivacyRules(8.0, unit="patient", rows_per_unit=3)),
        ("the fewer", {"unit": "patient", "rows_per_unit": 5}, PrivacyRules(8.0, unit="patient", rows_per_unit=2)),
    ):
        asker = begun(privacy, replace(OPEN, privacy=rules), table)
        assert asker.ask(show()) == Nothing()
        question = moments(variance=1e5)
        reply = asker.ask(question)
        assert not isinstance(reply, Refusal)
        costs[name] = asker.site.ledger.charged("table") / question.mu_squared
    assert costs == {
        "rows": pytest.approx(1),
        "people of the order": pytest.approx(9),
        "one row of each person": pytest.approx(4),  # without it another one counts
        "people of the site": pytest.approx(9),
        "the fewer": pytest.approx(4),
    }


def test_a_site_counts_so_many_rows_of_each_person(monkeypatch):
    monkeypatch.setattr(noise, "draws", lambda variance, count, key: np.zeros(count, np.int64))
    table = ArrayTable(ROWS, columns=["a", "b"])
    table.units = Units("patient", np.arange(len(ROWS)) // 10)
    rich = replace(OPEN, privacy=PrivacyRules(100.0))
    for most, held in ((1, 4), (3, 12), (20, 40)):
        asker = begun({"epsilon": 10.0, "unit": "patient", "rows_per_unit": most}, rich, table)
        assert asker.ask(show()) == Nothing()
        reply = asker.ask(moments(variance=1e6))
        assert int(reply.rows) == held
        assert asker.ask(prepare()) == Nothing()
        assert asker.ask(show()) == Nothing()
        assert int(asker.ask(moments(variance=1e6, reach=99)).rows) == held


def test_an_order_for_people_whom_a_site_cannot_tell_apart_is_refused():
    table = ArrayTable(ROWS, columns=["a", "b"])
    asker = Asker.of(table, OPEN, method=METHOD)
    order = an_order(METHOD, {"privacy": Privacy(unit="patient")}, run=asker.run.hex(), ranges=RANGES)
    hello = AskHello(signed(order).to_bytes(), HELLO_BYTES + REPORT_BYTES + 2)
    assert asker.ask(hello, {}) is Refusal.NO_UNIT
    with pytest.raises(InputError, match="the policy protects all rows of one 'patient', and the table was opened"):
        Site("here", table, policy=replace(OPEN, privacy=PrivacyRules(8.0, unit="patient")))


def test_cells_far_away_are_exact():
    asker = begun({"epsilon": 100.0}, replace(OPEN, privacy=PrivacyRules(100.0)))
    assert asker.ask(show()) == Nothing()
    far = np.array([[1e300, -1e300], [-1e300, 1e300], [0.0, 0.0]])
    found = asker.ask(SumByCell(1, 0, 64, np.array([1e4, 1e8]), 10, far))
    assert not isinstance(found, Refusal)


ALL = [(m.name, kind) for m in METHODS.values() for kind in m.settings]


@pytest.mark.parametrize(("name", "kind"), ALL, ids=str)
def test_what_cannot_be_private_is_refused_before_a_question_about_rows(name, kind):
    rows = {"site-0": ROWS, "site-1": ROWS + 1, "site-2": ROWS - 1}
    make = next(estimator for estimator in ESTIMATORS.values() if issubclass(estimator, kind))
    sizes = {"n_clusters": ClusterSettings, "n_components": ComponentSettings}
    few = {**METHODS[name].fixed, **{size: 2 for size, what in sizes.items() if issubclass(kind, what)}}
    estimator = make(**few)
    policy = Policy(protection="noise", privacy=PrivacyRules(8.0), per_site_results="rows", alignment_key=bytes(32))
    events: list[Any] = []
    with pytest.raises((RunError, InputError)) as refused:
        coterie.fit(estimator, rows, policy=policy, events=events.append)
    assert {event["asked"] for event in events if "asked" in event} <= {"secure.AskHello"}
    if isinstance(refused.value, RunError):
        assert {one.refusal for one in refused.value.outcomes.values()} == {Refusal.NOT_PRIVATE}
    if not issubclass(kind, PrivateSettings):
        with pytest.raises(TypeError, match="privacy"):
            make(**few, privacy=Privacy())


@pytest.mark.parametrize("options", [{"max_share": 0.5}, {"halves": True}, {"ranges": None}], ids=str)
def test_options_that_depend_on_rows_do_not_go_with_privacy(options):
    given = {"ranges": RANGES, **options}
    policy = Policy(protection="noise", privacy=PrivacyRules(8.0))
    with pytest.raises(InputError, match="privacy"):
        coterie.fit(FederatedKMeans(2, privacy=Privacy()), split_evenly(ROWS, 8), policy=policy, **given)


def test_no_value_closes_a_site_under_noise():
    odd = ArrayTable(np.array([[np.inf, 1e300]]))
    with pytest.raises(InputError):
        fingerprint(odd)
    assert fingerprint(odd, refuses=False)
