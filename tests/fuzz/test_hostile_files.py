"""Small files that are well-formed and ill-meant: models, policies, jobs, orders, ledgers and journals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coterie import load_model
from coterie.cli.jobs import read_job
from coterie.deployment.job import RemoteJob
from coterie.deployment.job import read_job as read_remote_job
from coterie.errors import CoterieError, InputError, JournalMismatch, LedgerBroken
from coterie.messages.chain import START, head_path, read_chain, read_open_chain, seal
from coterie.runtime.journal import JOURNAL_SCHEMA, Header, Journal
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy_files import read_policy
from tests.orders import a_job

from .files import models

DEEP = 100_000


@pytest.mark.parametrize("read", [read_policy, read_job])
@pytest.mark.parametrize(
    "text",
    [
        "clusters = " + "[" * DEEP,
        "clusters = " + "{a = " * DEEP,
        "clusters = " + "9" * 5000,
        "a." * 400_000 + "a = 1",
        '"=".' * 200_000 + "a = 1",
        "x = {" + "a." * 400_000 + "a = 1}",
        "#" * (1 << 21),
    ],
    ids=["deep list", "deep table", "long number", "long key", "quoted key", "inline key", "2 MB"],
)
def test_a_toml_file_that_would_take_long_is_one_clear_error(tmp_path: Path, read: Any, text: str) -> None:
    path = tmp_path / "file.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"TOML file|larger than 1 MB"):
        read(path)


def test_texts_with_many_dots_are_no_long_keys(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("clusters = 2\ndata = ['" + "../" * 200 + "a.csv', \"" + "a.b" * 200 + '\\".csv"]\n')
    assert len(read_job(path).data) == 2


@pytest.mark.parametrize(
    "text",
    ["[" * DEEP, json.dumps({"schema": 4, "kind": [], "coterie": ""}), '{"schema": ' + "9" * 5000 + "}"],
    ids=["deep", "kind", "long number"],
)
def test_a_model_of_nonsense_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(InputError, match="not a model file"):
        load_model(tmp_path / "model.json")


def test_a_model_file_beyond_the_bound_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "model.json").open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(InputError, match="larger than 256 MB"):
        load_model(tmp_path / "model.json")


def test_an_error_repeats_little_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps({"schema": "x" * 10**6, "kind": "LloydKMeans", "coterie": "1"}))
    with pytest.raises(InputError, match="is not known to coterie") as raised:
        load_model(tmp_path / "model.json")
    assert len(str(raised.value)) < 1000


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [10**400, _nested(50_000), "x" * (17 << 20)], ids=["number", "deep", "large"])
def test_an_order_of_nonsense_is_one_clear_error(value: Any) -> None:
    with pytest.raises(CoterieError, match=r"order|counted"):
        read_remote_job(msgspec.to_builtins(with_clusters(value)))


def with_clusters(value: Any) -> RemoteJob:
    """A job for so many clusters, whatever that is."""
    job = a_job()
    order = {**json.loads(job.order.order), "parameters": {"n_clusters": value}}
    raw = json.dumps(order).encode() if not isinstance(value, list) else b'{"run":' + b"[" * 50_000
    return msgspec.structs.replace(job, order=msgspec.structs.replace(job.order, order=raw))


def test_an_analyst_s_own_number_beyond_any_count_is_one_clear_error() -> None:
    with pytest.raises(InputError, match="more than anything is counted to"):
        with_clusters(10**400).check()


def _chained(path: Path, body: bytes) -> Path:
    """A line whose seal holds, and its head file."""
    chain = seal(START, body + b"}")
    path.write_bytes(body + b',"chain":"' + chain.encode() + b'"}\n')
    head_path(path).write_text(f"1 {chain}\n")
    return path


@pytest.mark.parametrize("body", [b"[1", b'{"a":\xff', b'{"a":' + b"[" * DEEP], ids=["list", "utf", "deep"])
def test_a_sealed_line_that_is_no_object_breaks_the_ledger(tmp_path: Path, body: bytes) -> None:
    path = _chained(tmp_path / "ledger.jsonl", body)
    for read in (read_chain, read_open_chain, SiteLedger):
        with pytest.raises(LedgerBroken, match="line 1 is no JSON object"):
            read(path)


@pytest.mark.parametrize(
    "head", ["-5 " + "0" * 64, "9" * 5000 + " x", "\xff", "1"], ids=["negative", "long", "word", "cut"]
)
def test_a_head_of_nonsense_breaks_the_ledger(tmp_path: Path, head: str) -> None:
    path = _chained(tmp_path / "ledger.jsonl", b'{"a":1')
    head_path(path).write_text(head)
    for read in (read_chain, read_open_chain, SiteLedger):
        with pytest.raises(LedgerBroken):
            read(path)


LINES = {"other": b'{"a":1', "text": b'{"event":"answer","floats":"x","bytes":1,"run":"0"'}


@pytest.mark.parametrize("body", LINES.values(), ids=LINES)
def test_a_sealed_line_of_something_else_breaks_a_site_s_ledger(tmp_path: Path, body: bytes) -> None:
    path = _chained(tmp_path / "ledger.jsonl", body)
    with pytest.raises(LedgerBroken, match="not one that coterie writes"):
        SiteLedger(path)


def test_lines_whose_numbers_cannot_be_added_up_break_a_ledger(tmp_path: Path) -> None:
    line = {"event": "once", "run": "", "what": "", "floats": 0, "round": -1}
    path, chain, text = tmp_path / "ledger.jsonl", START, b""
    for n_bytes in ("0.5", "9" * 400):
        body = msgspec.json.encode(line)[:-1] + f',"bytes":{n_bytes}'.encode()
        chain = seal(chain, body + b"}")
        text += body + f',"chain":"{chain}"}}\n'.encode()
    path.write_bytes(text)
    head_path(path).write_text(f"2 {chain}\n")
    with pytest.raises(LedgerBroken, match="not one that coterie writes"):
        SiteLedger(path)


@pytest.mark.parametrize("raw", [b"{", b'{"schema":4,"run":"\xff"}', b'{"a":' * DEEP], ids=["cut", "utf", "deep"])
def test_a_journal_s_header_of_nonsense_is_one_clear_error(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "header.json").write_bytes(raw)
    with pytest.raises(JournalMismatch, match="cannot be read"):
        Journal(tmp_path, resume=True)


def test_a_journal_s_header_with_other_arithmetic_is_one_clear_error(tmp_path: Path) -> None:
    header = Header(JOURNAL_SCHEMA, "0" * 32, "lloyd", {}, {}, {"blas": 1})
    (tmp_path / "header.json").write_bytes(msgspec.json.encode(header))
    with pytest.raises(JournalMismatch, match="differs in arithmetic"):
        Journal(tmp_path, resume=True).begin(Header(JOURNAL_SCHEMA, "0" * 32, "lloyd", {}, {}))


@pytest.mark.parametrize("place", [0, 1, 2, 4])  # that of dspgd holds no matrix
def test_a_model_whose_arrays_have_other_shapes_is_one_clear_error(tmp_path: Path, place: int) -> None:
    def flattened(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: flattened(item) for name, item in value.items()}
        is_matrix = isinstance(value, list) and value and isinstance(value[0], list)
        return value[0] if is_matrix else value

    model = json.loads(models()[place])
    model["result"] = flattened(model["result"])
    (tmp_path / "model.json").write_text(json.dumps(model))
    with pytest.raises(InputError, match="the model file is damaged"):
        load_model(tmp_path / "model.json")
