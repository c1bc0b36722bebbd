"""Two federations with other rows, of other numbers, and the same noisy numbers: nothing else that leaves may differ.

The second run is given what the first one's sites released, in the place of its own noisy sums (which its sites make
all the same). What then still differs depends on rows and was not paid for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import coterie
from coterie.errors import RunError
from coterie.messages import codec
from coterie.messages.codec import Envelope, Form
from coterie.messages.contributions import PrivateRequest
from coterie.messages.schema import Reply
from coterie.messages.site_api import Memory
from coterie.methods.shared.privacy import Privacy
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.attacks.private_runs import HIGH, LOW, private_estimators
from tests.federations import Rows, blobs

D = 4
RULES = PrivacyRules(epsilon=50.0)
POLICIES = {
    "default": Policy(protection="noise", privacy=RULES),
    "rows are few": Policy(protection="noise", privacy=RULES, min_rows=1000, max_questions=500, max_runs=3),
    "not verified": Policy(protection="noise", privacy=RULES, per_site_results="rows", verification="off"),
}
DRAWN_ANEW = ("time", "chain", "data", "frame", "run", "request", "question", "rows")
"""Of a ledger's line: hashes, times, keys, and sealed bytes."""
Released = dict[tuple[str, bytes], Reply]


def usual() -> dict[str, Rows]:
    """Three sites."""
    rows = blobs(180, D)
    return {f"site-{i}": rows[60 * i : 60 * (i + 1)] for i in range(3)}


def with_first(rows: Rows, dtype: Any = np.float64) -> dict[str, Rows]:
    """The same, but for one site."""
    return {name: (rows if name == "site-0" else own).astype(dtype) for name, own in usual().items()}


def odd() -> Rows:
    rows = blobs(300, D, seed=9) * 1e3
    rows[::7, 1], rows[1::7], rows[2::7, 0] = np.nan, np.inf, -1e300
    return rows


TWINS = {
    "one row less": lambda: with_first(usual()["site-0"][1:]),
    "another row": lambda: with_first(np.concatenate([usual()["site-0"][1:], np.full((1, D), 1e6)])),
    "no rows": lambda: with_first(np.zeros((0, D))),
    "one row that lacks all values": lambda: with_first(np.full((1, D), np.nan)),
    "odd rows": lambda: with_first(odd()),
    "many rows": lambda: with_first(np.tile(usual()["site-0"], (400, 1))),
    "no rows at all": lambda: {name: np.zeros((0, D)) for name in usual()},
    "single precision": lambda: with_first(np.full((30, D), 3.4e38), np.float32),
}


class Seen(NamedTuple):
    """Everything about a run that others see or can tell, but what is drawn anew in every run."""

    frames: list[tuple[Any, ...]]
    """By site what was asked, in which round, and the kind, code and size of the answer."""
    lines: dict[str, list[dict[str, Any]]]
    statements: dict[str, tuple[Any, ...]]
    exchanged: Any
    result: Any


@contextmanager
def listening(frames: list[tuple[Any, ...]], released: Released) -> Iterator[None]:
    """Note every answer; a question whose answer was released before gets that."""
    answer, privately = Site.answer, Site._privately

    def heard(site: Site, frame: bytes) -> bytes:
        given = answer(site, frame)
        asked, (form, envelope, start) = codec.decode_question(frame), codec.read_envelope(given)
        code = given[start] if form is Form.REFUSAL else None
        kind = asked.request.subject.kind if asked.request is not None else "recall"
        frames.append((site.name, kind, envelope.round, envelope.attempt, form, code, len(given)))
        return given

    def as_before(site: Site, envelope: Envelope, memory: Memory, request: PrivateRequest[Any]) -> Reply:
        made = privately(site, envelope, memory, request)
        return released.setdefault((site.name, codec.encode_body(request, {}).digest), made)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Site, "answer", heard)
        patch.setattr(Site, "_privately", as_before)
        yield


def fitted(rows: dict[str, Rows], released: Released, folder: Path, estimator: Any, policy: Policy, way: Any) -> Seen:
    """A run over these rows."""
    frames: list[tuple[Any, ...]] = []
    estimator.random_state = 5
    with listening(frames, released):
        made = coterie.fit(
            estimator,
            {name: ArrayTable(own, name=name) for name, own in rows.items()},
            policy=policy,
            ranges=(np.full(D, LOW), np.full(D, HIGH)),
            journal=folder,
            **way,
        )
    lines = {
        path.stem: [_known(json.loads(line)) for line in path.read_text().splitlines()]
        for path in sorted((folder / "sites").glob("site-*.jsonl"))
    }
    statements = {name: _said(one.statement) for name, one in made.certificate_.statements.items()}
    exchanged = [exchange.line() for exchange in made.ledger_.exchanges]
    return Seen(sorted(frames, key=repr), lines, statements, exchanged, plain(made.result_))


def _known(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in DRAWN_ANEW}


def _said(statement: Any) -> tuple[Any, ...]:
    return statement._replace(run=b"", order=b"", at=0, ledger=b"", hash=b"")


def plain(result: Any) -> list[Any]:
    """The numbers of a result as bytes."""
    if is_dataclass(result):
        return [plain(getattr(result, item.name)) for item in fields(result)]
    if isinstance(result, tuple | list):
        return [plain(one) for one in result]
    return result if result is None or isinstance(result, str) else [np.asarray(result, np.float64).tobytes()]


ESTIMATORS = [f"{type(e).__name__} {e.method}" for e in private_estimators(Privacy())]


def estimator_of(name: str) -> Any:
    """A new one by its name here."""
    return dict(zip(ESTIMATORS, private_estimators(Privacy(epsilon=20.0)), strict=True))[name]


def compared(one: Seen, other: Seen) -> None:
    """Part by part, so that it is seen what differs."""
    assert other.frames == one.frames
    assert other.statements == one.statements
    assert other.lines == one.lines
    assert other.exchanged == one.exchanged
    assert other.result == one.result


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_with_other_rows_everything_but_noisy_numbers_is_the_same(name, twin, tmp_path):
    released: Released = {}
    way = {"missing": "drop"} if twin == "odd rows" and "describe" not in name else {}
    one = fitted(usual(), released, tmp_path / "one", estimator_of(name), POLICIES["default"], way)
    n_released = len(released)
    compared(one, fitted(TWINS[twin](), released, tmp_path / "two", estimator_of(name), POLICIES["default"], way))
    assert len(released) == n_released >= 6


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "way", [{"scale": "standard", "missing": "mean"}, {"scale": "minmax", "missing": "drop"}], ids=str
)
def test_the_same_under_other_policies_and_preparations(policy, way, tmp_path):
    released: Released = {}
    one = fitted(usual(), released, tmp_path / "one", estimator_of(ESTIMATORS[0]), POLICIES[policy], way)
    for number, twin in enumerate(("no rows", "odd rows", "single precision")):
        rows = TWINS[twin]()
        folder = tmp_path / str(number)
        compared(one, fitted(rows, released, folder, estimator_of(ESTIMATORS[0]), POLICIES[policy], way))


def test_a_twin_would_be_found_by_one_exact_number(tmp_path, monkeypatch):
    """A site that refuses where it has few rows, as it does without noise."""
    check = Site._check_table

    def telling(site: Site, *asked: Any, **options: Any) -> None:
        check(site, *asked, **options)
        if site._tables["noise"].n_rows < 5:
            raise codec.MalformedMessage("few rows")

    monkeypatch.setattr(Site, "_check_table", telling)
    released: Released = {}
    name = ESTIMATORS[0]
    one = fitted(usual(), released, tmp_path / "one", estimator_of(name), POLICIES["not verified"], {})
    with pytest.raises((AssertionError, RunError)):
        two = fitted(TWINS["no rows"](), released, tmp_path / "two", estimator_of(name), POLICIES["not verified"], {})
        compared(one, two)


# ---------------------------------------------------------------- heads of ledgers


def test_rows_cannot_be_recognised_by_the_hash_of_a_ledger(tmp_path):
    """Others see heads before and after a run began, and can guess the line in between but for its key."""
    kept = []
    for place, rows in (("one", "the rows"), ("two", "the rows"), ("two", "the rows")):
        folder = tmp_path / place
        folder.mkdir(exist_ok=True)
        ledger = SiteLedger(folder / "ledger.jsonl")
        site = Site("here", ArrayTable(np.zeros((9, 2))), ledger=ledger, rows=rows)
        assert site._began_so(b"r" * 16)
        kept += ledger.notes(b"r" * 16, "fingerprint")
        ledger.close()
    assert b"rows" not in b"".join(kept)
    assert kept[0] != kept[1] == kept[2]
    other = Site("here", ArrayTable(np.zeros((9, 2))), ledger=SiteLedger(tmp_path / "two" / "ledger.jsonl"), rows="x")
    assert not other._began_so(b"r" * 16)
