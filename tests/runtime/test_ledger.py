"""The server's book."""

from __future__ import annotations

import json

import pytest

from coterie.errors import LedgerBroken
from coterie.messages.chain import read_chain
from coterie.protocols.lloyd import lloyd
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from tests.federations import blobs, federation


@pytest.fixture
def book():
    rows, ledger = blobs(100, 3, 2), Ledger()
    with federation(rows, 3) as channel:
        run(lloyd(rows[:2]), channel, method="lloyd", ledger=ledger)
    return ledger


def test_totals_by_site_add_up(book):
    for what in ("floats_up", "bytes_up", "bytes_down"):
        assert sum(book.total(what, site) for site in book.sites()) == book.total(what)
    assert book.total("rounds") == book.total("rounds", "site-0") == len(book.exchanges)
    assert book.total("rounds_masking") == 0
    assert book.total("bytes_up", "nobody") == 0


def test_an_unknown_total_names_the_known_ones(book):
    with pytest.raises(ValueError, match="floats_up, bytes_up"):
        book.total("megabytes")


def test_what_is_written_holds_and_says_what_was_seen(book, tmp_path):
    book.write(tmp_path)
    lines = read_chain(tmp_path / "ledger.jsonl")
    assert len(lines) == book.total("rounds")
    assert {line["asked"] for line in lines} == {"lloyd.Assign", "lloyd.Close"}
    assert {line["seen"] for line in lines} == {"summed"}
    assert sum(line["sites"]["site-1"][1] for line in lines) == book.total("floats_up", "site-1")
    assert json.loads((tmp_path / "ledger.json").read_text()) == book.summary()
    book.write(tmp_path)
    assert len(read_chain(tmp_path / "ledger.jsonl")) == len(lines)


def test_a_changed_line_is_noticed(book, tmp_path):
    book.write(tmp_path)
    path = tmp_path / "ledger.jsonl"
    path.write_text(path.read_text().replace('"round":1,', '"round":7,'))
    with pytest.raises(LedgerBroken, match="line 2"):
        read_chain(path)
