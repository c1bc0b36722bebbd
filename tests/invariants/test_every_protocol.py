"""What holds for every protocol, whatever it computes."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import QuorumLost
from coterie.messages.codec import read_envelope
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Request, message_fields, reply_type
from coterie.messages.site_api import ANSWERS, KEEPERS, Memory
from coterie.messages.verbs import Present
from coterie.methods.method import audit
from coterie.methods.registry import METHODS
from coterie.runtime.journal import Journal
from coterie.runtime.layers import sum_in_order
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable, PairedTable
from coterie_studies.closed_forms import Cost, one_round
from tests.federations import Cut, Tampered, blobs, split_evenly, tables_of
from tests.invariants.cases import CASES, D

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
ROWS = blobs(90, D, 3, seed=21)


def result(case, tables, **options):
    with in_process(tables, schedule=options.pop("schedule", None)) as channel:
        return run(case.protocol(ROWS), channel, method=case.method, **options)


def assert_same(case, one, two, tolerance=None):
    for a, b in zip(case.numbers(one), case.numbers(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance or case.tolerance, atol=tolerance or case.tolerance)


def test_every_registered_method_has_a_case():
    assert {case.method for case in CASES} == set(METHODS)


@every
@pytest.mark.parametrize("n_sites", [1, 3, 7])
def test_federated_is_pooled(case, n_sites):
    if case.pooled is None:
        pytest.skip("how rows are split is part of this problem")
    found = case.numbers(result(case, case.split(ROWS, n_sites)))
    for a, b in zip(found, case.pooled(ROWS), strict=True):
        np.testing.assert_allclose(a, b, rtol=case.tolerance, atol=case.tolerance)


@every
def test_how_rows_are_split_does_not_matter(case):
    if case.pooled is None or case.split is not split_evenly:
        pytest.skip("how rows are split is part of this problem")
    whole = result(case, case.split(ROWS, 1))
    rng = np.random.default_rng(0)
    sorted_by_value = np.argsort(np.argsort(ROWS[:, 0])) * 5 // len(ROWS)
    lonely = np.minimum(np.arange(len(ROWS)), 4)  # four sites of one row
    for owners in (rng.integers(0, 5, len(ROWS)), sorted_by_value, lonely, np.zeros(len(ROWS), int)):
        assert_same(case, whole, result(case, tables_of(ROWS, owners, 6)))  # the sixth has no rows


@every
def test_the_order_of_sites_does_not_matter(case):
    tables = case.split(ROWS, 4)
    forwards = result(case, tables)
    backwards = result(case, dict(reversed(tables.items())))
    assert_same(case, forwards, backwards, 1e-15)


@every
def test_replay_is_the_run(case, tmp_path):
    tables = case.split(ROWS, 3)
    first = result(case, tables, journal=Journal(tmp_path))

    class Silent:
        def sites(self):
            return tuple(tables)

        def exchange(self, payloads, timeout):
            raise AssertionError("a replay asks nobody")

    again = run(case.protocol(ROWS), Silent(), method=case.method, journal=Journal(tmp_path, resume=True))
    for a, b in zip(case.numbers(first), case.numbers(again), strict=True):
        assert a.tobytes() == b.tobytes()


def finds_limits(exchange):
    """Whether masked sums asked for how large values are."""
    return any(kind in exchange.asked for kind in (".Report", ".MeasureColumns"))


def floats_of_algorithm(ledger):
    """Numbers sent besides what masked sums need to find their limits."""
    exchanges = [exchange for exchange in ledger.exchanges if not finds_limits(exchange)]
    return sum(count.floats_up for exchange in exchanges for count in exchange.sites.values())


@every
def test_masked_is_plain_within_the_fixed_point_error(case):
    tables = case.split(ROWS, 5)
    ledger, plain_ledger = Ledger(), Ledger()
    plain = result(case, tables, ledger=plain_ledger)
    masked = result(case, tables, layers=[MaskedSums()], ledger=ledger)
    assert_same(case, plain, masked, 1e-8)
    assert floats_of_algorithm(ledger) == plain_ledger.total("floats_up")
    limits = sum(map(finds_limits, ledger.exchanges))
    assert ledger.total("rounds") == plain_ledger.total("rounds") + limits
    shown = {e.seen for e in ledger.exchanges if e.phase == "algorithm" and e.content not in ("nothing", "schema")}
    assert shown <= {"masked", "single"}


@every
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.99])
def test_a_masked_run_that_was_killed_resumes_to_the_same_result(case, part, tmp_path):
    from tests.runtime.test_journal import Killed, Killing

    tables, ledger = case.split(ROWS, 4), Ledger()
    whole = result(case, tables, layers=[MaskedSums()], ledger=ledger)
    step = int(part * len(ledger.exchanges))

    def life(resume, kill):
        with in_process(tables, folder=tmp_path / "sites") as channel:
            wire = Killing(channel, step, True) if kill else channel
            journal = Journal(tmp_path / "journal", resume=resume)
            layers = [MaskedSums()]
            return run(case.protocol(ROWS), wire, method=case.method, journal=journal, layers=layers)

    with pytest.raises(Killed):
        life(False, True)
    assert_same(case, whole, life(True, False), 1e-15)


def cut(table):
    """The same table in blocks of seven rows."""
    if isinstance(table, PairedTable):
        return PairedTable(cut(table._table), cut(table.new))
    return Cut(table._rows, keys=table.keys)


@every
def test_blocks_and_threads_do_not_matter(case):
    small = {name: cut(table) for name, table in case.split(ROWS, 3).items()}
    assert len(list(next(iter(small.values())).blocks())) in (5, 13)
    assert_same(case, result(case, case.split(ROWS, 3)), result(case, small))


def assert_counted(ledger, cost):
    for what in ("floats_up", "bytes_up", "bytes_down", "rounds"):
        assert ledger.total(what) == getattr(cost, what)


@every
@pytest.mark.parametrize("n_sites", [1, 4])
def test_the_closed_form_is_the_ledger(case, n_sites):
    if case.cost is None:
        pytest.skip("a method of another package has none")
    ledger, n_sites = Ledger(), max(n_sites, case.fewest_sites)
    found = result(case, case.split(ROWS, n_sites), ledger=ledger)
    assert_counted(ledger, case.cost(n_sites, found))


def listed(protocol, asked):
    """A protocol that writes down whom it asks what."""
    answer = None
    try:
        while True:
            question = protocol.send(answer)
            if not isinstance(question, Present):
                asked.append(question)
            answer = yield question
    except StopIteration as end:
        return end.value


@every
def test_the_ledger_counts_what_messages_declare(case):
    """For every round the sizes that the declared layouts give, whatever else the method does."""
    ledger, asked, tables = Ledger(), [], case.split(ROWS, 4)
    with in_process(tables) as channel:
        run(listed(case.protocol(ROWS), asked), channel, method=case.method, ledger=ledger)
    rounds = [
        one_round([question.request_for(name) for name in question.to or tables], method=case.method)
        for question in asked
    ]
    assert_counted(ledger, sum(rounds, Cost()))


@every
def test_the_sites_ledgers_add_up_to_the_servers(case):
    ledger = Ledger()
    with in_process(case.split(ROWS, 3)) as channel:
        run(case.protocol(ROWS), channel, method=case.method, ledger=ledger)
    for what in ("floats_up", "bytes_up"):
        for name, site in channel.members.items():
            assert site.ledger.total(what) == ledger.total(what, name)


@every
def test_what_is_asked_belongs_to_the_method_and_is_audited(case):
    ledger = Ledger()
    result(case, case.split(ROWS, 3), ledger=ledger)
    asked = {exchange.asked for exchange in ledger.exchanges}
    silent = {r.kind for r in _requests(case.method) if not message_fields(reply_type(r))}
    assert asked <= {line.asked for line in audit(METHODS[case.method])} | silent


def _requests(method):
    from coterie.methods.method import PREPARATION

    return (*PREPARATION, *METHODS[method].requests)


@every
def test_the_server_half_can_be_driven_by_hand(case):
    tables = case.split(ROWS, 3)
    memories = {name: Memory() for name in tables}
    for memory in memories.values():
        memory.alignment_key = bytes(32)

    def local(name, request: Request):
        memory = memories[name]
        keep = KEEPERS.get(type(request))
        if keep:
            keep(memory.table or tables[name], memory, request)
        return ANSWERS[type(request)](memory.table or tables[name], memory, request)

    protocol, answer = case.protocol(ROWS), None
    try:
        while True:
            question = protocol.send(answer)
            if isinstance(question, Present):
                answer = tuple(tables)
                continue
            replies = {name: local(name, question.request_for(name)) for name in question.to or tables}
            answer = sum_in_order(replies.values()) if question.summed else replies
    except StopIteration as stop:
        assert_same(case, stop.value, result(case, tables))


@every
def test_a_site_that_is_down_from_the_start_is_as_if_it_were_not_there(case):
    if case.samples_sites:
        pytest.skip("another roster samples other sites")
    tables = case.split(ROWS, 4)
    down = Schedule([Fault("site-3", "drop")])
    without = result(case, {name: table for name, table in tables.items() if name != "site-3"})
    assert_same(case, without, result(case, tables, schedule=down, terms=Terms(quorum=0.75)))


@every
def test_every_answer_damaged_once_changes_nothing(case):
    tables = case.split(ROWS, 3)
    damaged = Schedule([Fault(name, "corrupt", times=1) for name in tables], seed=5)
    assert_same(case, result(case, tables), result(case, tables, schedule=damaged), 1e-15)


@every
def test_no_exception_text_path_or_row_ever_leaves_a_site(case, tmp_path, caplog):
    """Tables that raise errors quoting a row and a path; only bare codes may come out."""
    secret, path = 271828.182845904, str(tmp_path / "patients.parquet")

    class Quoting(ArrayTable):
        def raw_blocks(self):
            raise RuntimeError(f"row {secret} of {path} cannot be read")

    tables = {name: Quoting(np.full((5, D), secret), name=name) for name in ("a", "b", "c")}
    sent = []

    def listen(name, question, frame):
        sent.append((question, frame))
        return frame

    with caplog.at_level(logging.CRITICAL), in_process(tables) as channel, pytest.raises(QuorumLost):
        run(case.protocol(ROWS), Tampered(channel, listen), method=case.method)
    assert sent
    for _, frame in sent:
        for leak in (str(secret), "row", path, "patients", "Error", "Traceback", "read"):
            assert leak.encode() not in frame
        assert np.float64(secret).tobytes() not in frame
        assert np.float32(secret).tobytes() not in frame


FORBIDDEN = {Refusal.SINGLE_ANSWER_FORBIDDEN, Refusal.ROWS_FORBIDDEN}


@every
@pytest.mark.parametrize("allowed", ["none", "averages"])
def test_what_discloses_rows_is_refused_by_every_site_that_does_not_allow_it(case, allowed):
    if not case.discloses_rows:
        pytest.skip("this method sends no rows")
    assert METHODS[case.method].sends_rows or case.method == "edge-kmeans"
    policy = Policy(per_site_results=allowed, verification="off", min_roster=1, protection="none")
    with in_process(case.split(ROWS, 3), policy=policy) as channel, pytest.raises(QuorumLost) as refused:
        run(case.protocol(ROWS), channel, method=case.method)
    assert {outcome.refusal for outcome in refused.value.outcomes.values()} <= FORBIDDEN


@every
def test_a_single_row_of_a_larger_site_never_travels(case):
    """Every row is unique and recognisable: none of its numbers may appear in what leaves."""
    if case.discloses_rows:
        pytest.skip("this method sends rows, and says so")
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(90, D)) * 1000
    values = {np.float64(v).tobytes() for v in rows.ravel()}
    sent = []

    def listen(name, question, frame):
        sent.append(frame)
        return frame

    with in_process(case.split(rows, 3)) as channel:
        run(case.protocol(rows), Tampered(channel, listen), method=case.method)
    for frame in sent:
        start = read_envelope(frame)[2] + 4
        numbers = {frame[i : i + 8] for i in range(start, len(frame) - 7)}
        assert not numbers & values
