"""Rows of several sites in one order: matched by key or by place, and nobody told which row is whose."""

from __future__ import annotations

import hashlib
import hmac
import logging

import numpy as np
import pandas as pd
import pytest

from coterie.engines.inprocess import in_process
from coterie.errors import InputError, QuorumLost, Unaligned
from coterie.messages.site_api import Memory, keys_of
from coterie.methods.shared.alignment import ORDERS, SendTags, align, local_tags, row_tags
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable, PairedTable, open_table, read_keys
from coterie_studies.closed_forms import align_cost

METHOD = "vertical-kernel-pca"
SECRET = bytes(range(32))
OPEN = Policy(per_site_results="rows", protection="none", min_roster=1, alignment_key=SECRET)


def table(keys, seed=0):
    return ArrayTable(np.random.default_rng(seed).normal(size=(len(keys), 2)), keys=keys)


def aligned(tables, policy=OPEN, **options):
    with in_process(tables, policy=policy) as channel:
        return run(align(**options), channel, method=METHOD)


def test_tags_are_hmacs_of_the_keys_text():
    found = row_tags(["anna", 7], SECRET)
    expected = [hmac.new(SECRET, text, hashlib.sha256).digest()[:8] for text in (b"anna", b"7")]
    assert [int(tag).to_bytes(8, "little") for tag in found] == expected
    assert not set(row_tags(["anna"], bytes(32))) & set(found)


def test_keys_spelt_alike_are_alike():
    composed, apart = "J\u00f6rg", "Jo\u0308rg"
    assert composed != apart
    for one, other in ((composed, apart), (7, 7.0), (" x ", "x"), (np.int64(7), "7")):
        np.testing.assert_array_equal(row_tags([one], SECRET), row_tags([other], SECRET))
    with pytest.raises(InputError, match="must be bytes"):
        row_tags(["x"], "secret")


def test_sites_in_other_orders_are_brought_into_one():
    keys = [f"patient {i}" for i in range(50)]
    turned = list(np.random.default_rng(1).permutation(keys))
    found = aligned({"a": table(keys), "b": table(turned)})
    assert found.n_rows == 50
    np.testing.assert_array_equal(found.tags, np.sort(row_tags(keys, SECRET)))
    for own in (keys, turned):
        memory = Memory()
        memory.alignment_key = SECRET
        from coterie.methods.shared.alignment import keep_order

        keep_order(table(own), memory, SendTags(50, False))
        in_order = [own[i] for i in memory[ORDERS[False]]]
        np.testing.assert_array_equal(row_tags(in_order, SECRET), found.tags)
        np.testing.assert_array_equal(local_tags(table(own), memory, SendTags(50, False)).tags, found.tags)


def test_without_keys_rows_go_by_their_place():
    found = aligned({"a": ArrayTable(np.zeros((5, 1))), "b": ArrayTable(np.ones((5, 3)))})
    assert (found.n_rows, found.tags) == (5, None)
    with pytest.raises(Unaligned, match="a has 5, b has 4"):
        aligned({"a": ArrayTable(np.zeros((5, 1))), "b": ArrayTable(np.ones((4, 3)))})


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        (["k1", "k2", "k3"], ["k3", "k1"], "1 of 3 at a, 0 of 2 at b"),
        (["k1", "k2", "k3"], ["k3", "k1", "k9"], "1 of 3 at a, 1 of 3 at b"),
        (["k1", "k2"], ["k8", "k9"], "2 of 2 at a, 2 of 2 at b"),
        (["k1", "k2", "k2"], ["k1", "k2", "k3"], "repeat a key: 1 of 3 at a"),
        (["k1"] * 4, ["k1"] * 4, "repeat a key: 3 of 4 at a, 3 of 4 at b"),
    ],
)
def test_a_mismatch_names_how_many_rows_differ_and_never_which(a, b, told):
    with pytest.raises(Unaligned, match=told) as found:
        aligned({"a": table(a), "b": table(b)})
    for key in {*a, *b}:
        assert key not in str(found.value)
        assert str(int(row_tags([key], SECRET)[0])) not in str(found.value)


def test_a_site_with_another_secret_matches_nobody():
    other = Policy(per_site_results="rows", protection="none", min_roster=1, alignment_key=bytes(32))
    with pytest.raises(Unaligned, match=r"3 of 3 at a, 3 of 3 at b. Check that all sites use the same alignment_key"):
        aligned({"a": table(["x", "y", "z"]), "b": table(["x", "y", "z"])}, {"a": OPEN, "b": other})


def test_a_site_without_a_secret_or_without_keys_says_so(caplog):
    keyless = Policy(per_site_results="rows", protection="none", min_roster=1)
    with caplog.at_level(logging.CRITICAL), pytest.raises(QuorumLost, match="no keys or no alignment_key"):
        aligned({"a": table(["x"]), "b": table(["x"])}, keyless)
    with pytest.raises(Unaligned, match="keys at a but not at b"):
        aligned({"a": table(["x", "y"]), "b": ArrayTable(np.zeros((2, 1)))})


def test_rows_with_weights_and_no_rows_are_refused():
    with pytest.raises(InputError, match="every row must count once"):
        aligned({"a": ArrayTable(np.zeros((3, 1)), weights=[1, 2, 1]), "b": ArrayTable(np.zeros((3, 1)))})
    with pytest.raises(InputError, match="no rows"):
        aligned({"a": ArrayTable(np.zeros((0, 1))), "b": ArrayTable(np.zeros((0, 1)))})


def test_new_rows_are_aligned_by_themselves():
    pairs = {
        name: PairedTable(table(["p", "q"]), table(later))
        for name, later in {"a": ["r", "s", "t"], "b": ["t", "r", "s"]}.items()
    }
    found = aligned(pairs, new=True)
    np.testing.assert_array_equal(found.tags, np.sort(row_tags(["r", "s", "t"], SECRET)))
    with pytest.raises(QuorumLost, match="not the rows asked for"):
        aligned({"a": table(["p"]), "b": table(["p"])}, new=True)


@pytest.mark.parametrize("keyed", [False, True])
def test_the_cost_is_the_ledgers(keyed):
    tables = {name: table(range(9)) if keyed else ArrayTable(np.zeros((9, 1))) for name in "abc"}
    ledger = Ledger()
    with in_process(tables, policy=OPEN) as channel:
        found = run(align(), channel, method=METHOD, ledger=ledger)
    cost = align_cost(3, found, method=METHOD)
    for what in ("floats_up", "bytes_up", "bytes_down", "rounds"):
        assert ledger.total(what) == getattr(cost, what)
    assert cost.floats_up == 3 * (3 + 9 * keyed)


def test_neither_keys_nor_the_secret_leave_a_site():
    from tests.federations import Tampered

    keys, sent = [f"patient-{i}" for i in range(20)], []

    def listen(name, question, frame):
        sent.append(frame)
        return frame

    with in_process({"a": table(keys), "b": table(keys[::-1])}, policy=OPEN) as channel:
        run(align(), Tampered(channel, listen), method=METHOD)
    everything = b"".join(sent)
    assert b"patient" not in everything
    assert SECRET not in everything
    assert SECRET.hex() not in repr(OPEN)


# ---------------------------------------------------------------- keys of tables


def test_keys_are_read_alike_from_any_file(tmp_path):
    frame = pd.DataFrame({"id": [12, 7, 100], "x": [1.0, 2.0, 3.0], "name": ["a", "b", "c"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.assign(id=frame["id"].astype(float)).to_parquet(tmp_path / "floats.parquet")
    for source in (tmp_path / "t.csv", tmp_path / "t.parquet", tmp_path / "floats.parquet", frame):
        found = open_table(source, key="id", ignore=["name"])
        assert keys_of(found) == ("12", "7", "100") == read_keys(source, "id")
        assert [column.name for column in found.columns] == ["x"]
        assert keys_of(open_table(source, key="name")) == ("a", "b", "c")
    assert [c.name for c in open_table(frame, key="name", columns=["name", "x"]).columns] == ["x"]


def test_leading_zeros_of_text_keys_stay(tmp_path):
    (tmp_path / "t.csv").write_text("id,x\n007,1\n 07 ,2\n7,3\n")
    assert keys_of(open_table(tmp_path / "t.csv", key="id")) == ("007", "07", "7")


@pytest.mark.parametrize("missing", [[1, None, 3], ["a", "", "c"], ["a", None, None]])
def test_a_row_without_a_key_is_an_error_that_counts(missing):
    frame = pd.DataFrame({"id": missing, "x": [1.0, 2.0, 3.0]})
    rows = "2 rows" if missing.count(None) == 2 else "1 row"
    with pytest.raises(InputError, match=f"{rows} without a key"):
        open_table(frame, key="id")


def test_a_key_that_is_not_there_names_the_nearest():
    with pytest.raises(InputError, match="there is no column 'idd'; there are 'id'"):
        open_table(pd.DataFrame({"id": [1], "x": [2.0]}), key="idd")
    with pytest.raises(InputError, match="2 rows without a key"):
        ArrayTable(np.zeros((3, 1)), keys=["a", None, float("nan")])
    with pytest.raises(InputError, match="1 row without a key"):
        ArrayTable(np.zeros((1, 1)), keys=["  "])
    with pytest.raises(InputError, match="2 keys for 3 rows"):
        ArrayTable(np.zeros((3, 1)), keys=["a", "b"])


def test_new_rows_need_the_same_columns():
    with pytest.raises(InputError, match="other columns"):
        PairedTable(ArrayTable(np.zeros((2, 2))), ArrayTable(np.zeros((2, 3))))
