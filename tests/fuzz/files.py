"""Files and orders of others: valid ones, nearly valid ones, and what must hold when any of them is read."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

import coterie
from coterie.cli.certificates import read_certificate
from coterie.cli.jobs import read_job
from coterie.deployment.job import RemoteJob
from coterie.deployment.job import read_job as read_remote_job
from coterie.errors import CoterieError
from coterie.messages.chain import START, head_path, read_chain, read_open_chain, seal
from coterie.messages.identity import Authority, Card, Certificate, Identity, Revocations, Trust
from coterie.methods.order import Order, SignedOrder
from coterie.runtime.journal import JOURNAL_SCHEMA, Header, Journal, Record
from coterie.runtime.roster import Standing
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy_files import PRESETS, explain_policy, policy_text, read_policy, upgraded_policy
from coterie.sites.tables import open_table, read_columns, read_keys
from coterie.sites.tables.phrases import UNREADABLE
from tests.orders import ANALYST, a_job

from .bounds import bounded
from .mutator import FLOATS, NUMBERS, TEXTS, _bits, _cut, _noise, _splice

Mutate = Callable[[random.Random, bytes, list[bytes]], bytes]
BLIND: tuple[Mutate, ...] = (_bits, _splice, _cut, _noise)
JSON_VALUES = (*NUMBERS, *FLOATS, *TEXTS, None, True, [], {}, 10**400, -1.5, 1e20, [[1.0]], {"a": 1})
ROWS = np.round(np.random.default_rng(5).normal(size=(30, 3)), 3)
AUTHORITY = Authority(bytes(range(32)))
IDENTITY = Identity.certified_by(AUTHORITY, "clinic", bytes(range(1, 33)))
RUN = "0123456789abcdef" * 2


class Target(NamedTuple):
    """Something that reads bytes of others."""

    corpus: Callable[[], list[bytes]]
    read: Callable[[bytes, Path], Any]
    ways: tuple[Mutate, ...] = BLIND


def inputs(target: Target, count: int, seed: int) -> Iterator[bytes]:
    """``count`` inputs, made from valid ones by small and by knowing changes; the valid ones come first."""
    rng, corpus = random.Random(seed), target.corpus()
    yield from corpus[:count]
    for _ in range(count - len(corpus)):
        data = rng.choice(corpus)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            data = rng.choice(target.ways)(rng, data, corpus)
        yield data


def fuzz(target: Target, count: int, seed: int, folder: Path) -> int:
    """Read all inputs; how many could be read. Any other end than that or a ``CoterieError`` is raised."""
    n_read = 0
    with bounded() as check:
        for data in inputs(target, count, seed):
            check.begin()
            error = fuzz_one(target, data, folder)
            assert error is None or (error and "more memory than there is" not in error), data[:2000]
            check(data)
            n_read += error is None
    return n_read


def fuzz_one(target: Target, data: bytes, folder: Path) -> str | None:
    """The one clear error that an input ends in; None if it could be read."""
    try:
        target.read(data, folder)
    except CoterieError as problem:
        return str(problem)
    return None


def changed_json(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """A JSON document with a value, an item or a key changed somewhere in it."""
    try:
        return json.dumps(_changed(rng, json.loads(data))).encode()
    except (ValueError, OverflowError, RecursionError):
        return data


def _changed(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.95:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            others = {name: item for name, item in value.items() if name != key}
            return rng.choice((others, {**others, rng.choice(TEXTS): value[key]}))
        return {**value, key: _changed(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        longer = [*value[:place], _changed(rng, value[place]), *value[place + 1 :]]
        return rng.choice((longer, longer, longer, value[:place], [*value, value[place]]))
    if isinstance(value, int | float) and rng.random() < 0.5:
        return rng.choice((value + 1, value - 1, -value, value * 1000, float(value)))
    return rng.choice(JSON_VALUES)


def changed_lines(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """A text with a line dropped, doubled, moved or its value changed."""
    lines = data.split(b"\n")
    place, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    name = lines[place].split(b"=")[0]
    value = json.dumps(rng.choice(JSON_VALUES)).encode()
    new = (name + b"= " + value, lines[other], b"", lines[place] * 2, b"[" + name.strip() + b"]", name + b".a = 1")
    lines[place] = rng.choice((*new, new[0], new[0]))
    return b"\n".join(lines)


def changed_array(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """An archive whose arrays have another header, other bytes or another name, packed anew."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except (*UNREADABLE, lzma.LZMAError):
        return data
    if not members:
        return data
    name = rng.choice(list(members))
    way = rng.randrange(4)
    if way == 0:
        members[rng.choice(("X.npy", "columns.npy", "a.npy", "X", "x/../X.npy"))] = members.pop(name)
    elif way == 1:
        members[name] = rng.choice(BLIND)(rng, members[name], corpus)
    else:
        old, new = rng.choice(HEADER_WORDS)
        members[name] = members[name].replace(old, rng.choice(new), 1)
    packed = io.BytesIO()
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    method = rng.choice(methods)
    with zipfile.ZipFile(packed, "w") as archive:
        for name, raw in members.items():
            archive.writestr(zipfile.ZipInfo(name), raw, method)  # by itself it holds the time of day
    return packed.getvalue()


HEADER_WORDS: tuple[tuple[bytes, tuple[bytes, ...]], ...] = (
    (
        b"'<f8'",
        (b"'|O' ", b"'<U8'", b"'>f8'", b"'<M8'", b"'c16'", b"'V8' ", b"[('a','<f8')]", b"'<U999999999'", b"1"),
    ),
    (b"False", (b"True ", b"None ", b"1    ")),
    (
        b"(30, 3)",
        (b"(3, 30)", b"(-3, 3)", b"(90,)  ", b"()     ", b"(30,3,1)", b"(99999999999, 3)", b"(0, 999999999)"),
    ),
    (b"30, 3", (b"1e1,3", b"-1,-1", b"30, 0", b"'a', 3", b"(((3,),),),3", b"2**63, 3")),
    (b"\x93NUMPY\x01", (b"\x93NUMPY\x02", b"\x93NUMPY\x03", b"\x93NUMPY\xff")),
    (b"descr", (b"shape", b"Descr", b"'\n'")),
)


def resealed(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """A ledger one of whose lines is changed, and whose seals hold again."""
    sealed, chain = b"", START
    lines = [line.rpartition(b',"chain"')[0] + b"}" for line in data.splitlines() if b',"chain"' in line]
    place = rng.randrange(len(lines) + 1)
    for i, line in enumerate(lines):
        body = rng.choice((changed_json, changed_json, _bits))(rng, line, corpus) if i == place else line
        chain = seal(chain, body)
        sealed += body[:-1] + b',"chain":"' + chain.encode() + b'"}\n'
    return sealed


@cache
def models() -> list[bytes]:
    """A model of every kind that is fitted in a moment."""
    rows = np.random.default_rng(0).normal(size=(60, 3))
    fitted: tuple[Any, ...] = (
        coterie.FederatedKMeans(2, random_state=0),
        coterie.FederatedPCA(2, random_state=0),
        coterie.FederatedKernelKMeans(2, random_state=0),
        coterie.DSPGDKernelPCA(2, n_features=20, random_state=0),
        coterie.EdgeKMeans(2, random_state=0),
    )
    path = Path(f"/tmp/coterie-fuzz-{time.time_ns()}.json")
    try:
        return [coterie.save_model(estimator.fit(rows), path).read_bytes() for estimator in fitted]
    finally:
        path.unlink(missing_ok=True)


def orders() -> list[bytes]:
    return [job.order.order for job in _ordered_jobs()]


def _ordered_jobs() -> list[RemoteJob]:
    plain = a_job("lloyd", {"n_clusters": 3, "random_state": 1}, scale="minmax", ranges=([0, 1], [2, 3]))
    kernel = a_job("landmarks", {"gamma": 0.1}, ["a"], scale="standard", missing="mean", quorum=0.5)
    wide = a_job("vertical-kernel-pca", columns=[], settings={"out": "x", "data": ["a"]})
    return [plain, kernel, wide]


def signed_orders() -> list[bytes]:
    return [job.order.to_bytes() for job in _ordered_jobs()]


def remote_jobs() -> list[bytes]:
    return [msgspec.json.encode(job) for job in _ordered_jobs()]


def _jobs() -> list[bytes]:
    full = """clusters = 3
data = ["a.csv", "b.csv"]
out = "run"
method = "lloyd"
columns = ["a", "b"]
ignore = ["c"]
scale = "minmax"
ranges = { a = [0, 1], b = [0.5, 2e3] }
categories = { a = ["x", "y"] }
settings = { max_iter = 10 }
policy = { a = "strict", b = "standard" }
quorum = 0.5
deadline = 30
[extra]
seed = 1979-05-27T07:32:00Z
"""
    return [full.rpartition("[extra]")[0].encode(), full.encode(), b'clusters = 2\ndata = { a = "a.csv" }\nseed = 1']


def _policies() -> list[bytes]:
    peers = '\n[peers]\nnorth = "' + "ab" * 32 + '"\n[method.dspgd]\nprotection = "none"\n'
    texts = [policy_text(name) for name in PRESETS]
    bare = ["\n".join(line for line in text.splitlines() if line and line[0] != "#") for text in texts]
    return [text.encode() for text in (*texts, *bare, bare[0] + peers, 'single_answers = "none"\nmin_count = 9')]


def _npz() -> list[bytes]:
    made = []
    for save in (np.savez, np.savez_compressed):
        for arrays in ({"X": ROWS}, {"X": ROWS, "columns": np.array(["a", "b", "c"])}, {"a": ROWS, "y": ROWS[:, 0]}):
            file = io.BytesIO()
            save(file, **arrays)
            made.append(file.getvalue())
    return made


def _table() -> pa.Table:
    columns = {f"x{i}": column for i, column in enumerate(ROWS.T)}
    return pa.table({**columns, "n": np.arange(30), "b": np.arange(30) > 3, "t": [f"key {i}" for i in range(30)]})


def _written(write: Callable[[Any], Any]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def _parquet() -> list[bytes]:
    table = _table()
    return [
        _written(lambda file, c=compression, d=dictionary: pq.write_table(
            table, file, compression=c, use_dictionary=d, row_group_size=20))
        for compression in ("none", "snappy", "zstd", "gzip") for dictionary in (True, False)
    ]  # fmt: skip


def _arrow() -> list[bytes]:
    tables = (_table(), _table().set_column(5, "t", _table()["t"].dictionary_encode()))
    kinds = ("uncompressed", "lz4", "zstd")
    return [_written(lambda f, t=t, k=k: feather.write_feather(t, f, compression=k)) for t in tables for k in kinds]


def _csv() -> list[bytes]:
    rows = "\n".join(",".join(map(str, row)) for row in ROWS.tolist())
    texts = (
        f"a,b,c\n{rows}\n",
        f'a,"b,\n",c\n{rows}',
        "a,t\n1,x\n2,y\n,z\n",
        "a\n1\n\n2",
        "a,b",
        "d,e\n2020-01-01,true\n",
    )
    return [text.encode() for text in texts]


def _ledgers() -> list[bytes]:
    lines = [
        {
            "event": "answer",
            "run": RUN,
            "round": 1,
            "attempt": 0,
            "request": "ab",
            "floats": 1,
            "bytes": 9,
            "frame": "",
        },
        {"event": "once", "run": RUN, "what": "x", "floats": 0, "bytes": 0, "round": -1},
        {"event": "note", "run": RUN, "what": "rows", "data": "", "floats": 0, "bytes": 0, "round": -1},
        {"event": "refusal", "run": RUN, "round": 1, "attempt": 0, "floats": 0, "bytes": 3},
    ]
    chain, text = START, b""
    for line in lines:
        raw = msgspec.json.encode(line)
        chain = seal(chain, raw)
        text += raw[:-1] + b',"chain":"' + chain.encode() + b'"}\n'
    return [text]


def _headers() -> list[bytes]:
    blas = {"libblas": {"kernel": "Haswell", "version": "openblas 0.3"}}
    header = Header(JOURNAL_SCHEMA, RUN, "lloyd", {"coterie": "1"}, {"a": [1]}, {"blas": blas}, ["a"])
    return [msgspec.json.encode(header)]


def _records() -> list[bytes]:
    folder = Path(f"/tmp/coterie-fuzz-{time.time_ns()}")
    journal = Journal(folder)
    journal.begin(Header(JOURNAL_SCHEMA, RUN, "lloyd", {}, {}))
    for i in range(3):
        journal.write(Record(bytes(16), "sum", b"12345678", i, [], {"a": Standing(1, 2)}, []))
    data = (folder / "records.bin").read_bytes()
    for path in (*folder.iterdir(), folder):
        path.rmdir() if path.is_dir() else path.unlink()
    return [data]


def _read_remote_job(data: bytes, _: Path) -> None:
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):  # NVFlare has read it as JSON before
        return
    read_remote_job(raw)


def _read_order(data: bytes, _: Path) -> None:
    order = Order.from_bytes(data)
    order.chosen()
    order.unsupported()


def _in_file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], Any]:
    def target(data: bytes, folder: Path) -> Any:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return target


def _read_table(path: Path) -> None:
    texts = [column.name for column in read_columns(path) if column.kind == "text"]
    for _ in open_table(path, ignore=texts).raw_blocks():
        pass
    if "t" in texts:
        read_keys(path, "t")


def _read_policies(path: Path) -> None:
    upgraded_policy(path)
    explain_policy(read_policy(path))


def _read_job(path: Path) -> None:
    job = read_job(path)
    job.estimator()
    job.ranges_of(job.columns or ())


def _read_ledger(path: Path) -> None:
    chain = [line for line in path.read_bytes().splitlines() if b'"chain":"' in line]
    last = chain[-1].rpartition(b'"chain":"')[2][:64].decode("ascii", "replace") if chain else START
    head_path(path).write_text(f"{len(chain)} {last}")
    SiteLedger(path).close()
    read_open_chain(path)
    read_chain(path)


def _read_header(path: Path) -> None:
    Journal(path.parent, resume=True).begin(msgspec.json.decode(_headers()[0], type=Header))


def _read_records(path: Path) -> None:
    (path.parent / "header.json").write_bytes(_headers()[0])
    Journal(path.parent, resume=True)


def _read_certificate(data: bytes, _: Path) -> None:
    Trust(AUTHORITY.public).check(Certificate.from_bytes(data), "site", "clinic")


def _read_card(data: bytes, _: Path) -> None:
    Trust(AUTHORITY.public).check_card(Card.from_bytes(data), "clinic")


def _read_revocations(data: bytes, _: Path) -> None:
    Trust(AUTHORITY.public, Revocations.from_bytes(data)).check(IDENTITY.certificate, "site", "clinic")


def _lists() -> list[bytes]:
    serials = [bytes([i] * 8) for i in range(5)]
    return [AUTHORITY.revoke(serials[:n], n).to_bytes() for n in (1, 2, 5)]


def _run_certificates() -> list[bytes]:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    tables = {name: rows[i::3] for i, name in enumerate("abc")}
    found = coterie.fit(coterie.FederatedKMeans(2, random_state=0), tables).certificate_
    assert found is not None
    return [msgspec.json.encode(found), msgspec.json.encode(msgspec.structs.replace(found, sites={"a": None}))]


def _read_run_certificate(path: Path) -> None:
    found = read_certificate(path)
    found.problems(found.authority_key)


JSON, TEXT = (*BLIND, *[changed_json] * 12), (*BLIND, *[changed_lines] * 8)
TARGETS: dict[str, Target] = {
    "order": Target(orders, _read_order, JSON),
    "signed order": Target(signed_orders, lambda data, _: SignedOrder.from_bytes(data).checked(ANALYST.trust)),
    "remote job": Target(remote_jobs, _read_remote_job, JSON),
    "certificate": Target(lambda: [IDENTITY.certificate.to_bytes()], _read_certificate),
    "card": Target(lambda: [IDENTITY.card(bytes(range(2, 34))).to_bytes()], _read_card),
    "revocations": Target(_lists, _read_revocations),
    "run certificate": Target(_run_certificates, _in_file("c.json", _read_run_certificate), JSON),
    "model": Target(models, _in_file("model.json", coterie.load_model), JSON),
    "policy": Target(_policies, _in_file("policy.toml", _read_policies), TEXT),
    "job": Target(_jobs, _in_file("job.toml", _read_job), TEXT),
    "ledger": Target(_ledgers, _in_file("ledger.jsonl", _read_ledger), (*BLIND, *[resealed] * 8)),
    "header": Target(_headers, _in_file("header.json", _read_header), JSON),
    "records": Target(_records, _in_file("records.bin", _read_records)),
    "npz": Target(_npz, _in_file("t.npz", _read_table), (*BLIND, *[changed_array] * 6)),
    "parquet": Target(_parquet, _in_file("t.parquet", _read_table)),
    "arrow": Target(_arrow, _in_file("t.arrow", _read_table)),
    "csv": Target(_csv, _in_file("t.csv", _read_table), (*BLIND, changed_lines)),
    "csv.gz": Target(lambda: [gzip.compress(one, mtime=0) for one in _csv()], _in_file("t.csv.gz", _read_table)),
}
