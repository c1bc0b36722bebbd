"""The result files of a run, written after it has succeeded.

Files with a line for every row are for their owner alone; the others are made to be shown, and keep the umask.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

import coterie
from coterie.errors import InputError, Unaligned
from coterie.estimators.choosing import ChoiceModel
from coterie.estimators.kmeans import FederatedKMeans
from coterie.estimators.models import save_model
from coterie.estimators.vertical import VerticalKernelKMeans
from coterie.files import private_file
from coterie.messages.site_api import Table, keys_of
from coterie.methods.shared.alignment import row_tags
from coterie.methods.shared.halves import Halves
from coterie.methods.shared.selection import selected
from coterie.report.choices import CHOICE, choice_facts, choice_words, write_choice
from coterie.report.in_force import in_force
from coterie.report.labels import COST_WORDS, ROWS_COLUMN, cost_sentence, exactness_of, facts_of, rows_sentence
from coterie.report.markup import ShownRows
from coterie.report.page import REPORT, write_page
from coterie.report.privacy import privacy_facts
from coterie.report.profiles import (
    COMPOSITION,
    PROFILES,
    composition_facts,
    profile_facts,
    write_composition,
    write_profiles,
)
from coterie.runtime.ledger import Exchange, Ledger
from coterie.secure.certificates import CERTIFICATE
from coterie.sites.policy import Policy
from coterie.text import count_of

RESULT_SCHEMA = 2
"""1 had other words for how exact costs and sizes are, and did not say what was in force."""
RESULT_FILES = (
    *("result.json", "centers.csv", "components.parquet", "ledger.jsonl", "ledger.jsonl.head", "ledger.json"),
    *("model.json", REPORT, PROFILES, COMPOSITION, CERTIFICATE, CHOICE),
)
"""What a run writes at a server."""
SHOWN_ROWS = 2000
"""Of all sites, on a page of an owner of all data who asks for rows."""


def write_labels(
    estimator: FederatedKMeans, table: Table, path: Path, ids: tuple[str, Any] | None = None
) -> tuple[int, int]:
    """Write a column ``cluster`` (null: no label), after one of ids if there are any, as CSV or Parquet; return the
    numbers of rows and of rows without a label."""
    fields = [] if ids is None else [(ids[0], ids[1].type)]
    schema, n_rows, left_out = pa.schema([*fields, ("cluster", pa.int32())]), 0, 0
    write: Any = arrow_csv.CSVWriter if path.suffix == ".csv" else pq.ParquetWriter
    with write(private_file(path), schema) as writer:
        for block in table.raw_blocks():
            labels = estimator.label_rows(block.rows)
            own = [] if ids is None else [ids[1].slice(n_rows, len(labels))]
            columns = [*own, pa.array(labels, pa.int32(), mask=labels < 0)]
            writer.write_table(pa.table(columns, schema=schema))
            n_rows, left_out = n_rows + len(labels), left_out + int((labels < 0).sum())
    return n_rows, left_out


def asked_of(ledger: Ledger) -> list[dict[str, Any]]:
    """Every kind of question, in order: how often it was asked, and the most values one site sent in answer.

    Rounds for keys and proofs are one line at the end.
    """

    def kind(exchange: Exchange) -> dict[str, str]:
        if exchange.phase == "masking":
            return {"asked": "keys, proofs", "answer": "", "content": "no data", "seen": ""}
        asked = exchange.asked.rpartition(".")[2]
        return {"asked": asked, "answer": exchange.answer, "content": exchange.content, "seen": exchange.seen}

    kinds = []
    in_order = sorted(ledger.exchanges, key=lambda exchange: exchange.phase == "masking")
    for same, group in groupby(in_order, kind):
        counts = [[count.floats_up for count in exchange.sites.values()] for exchange in group]
        kinds.append(
            {**same, "times": len(counts), "numbers": max((n for sites in counts for n in sites), default=0)}
        )
    return kinds


def result_of(
    estimator: Any,
    columns: list[str],
    settings: Mapping[str, Any],
    tables: Mapping[str, Table] | None = None,
    policies: Mapping[str, Policy] | None = None,
) -> dict[str, Any]:
    """The contents of ``result.json``."""
    ledger = estimator.ledger_
    exactness = facts_of(estimator, n_held(estimator, tables))
    facts = {**exactness, "cost": estimator.inertia_}
    return {
        **_run_facts(estimator, settings, policies),
        "columns": columns,
        "inputs": _inputs(estimator),
        "centers": estimator.cluster_centers_.tolist(),
        "counts": estimator.counts_.tolist(),
        "cost": estimator.inertia_,
        **exactness,
        "privacy": privacy_facts(estimator),
        "halves": halves_of(estimator.halves_),
        "profiles": profile_facts(estimator.profiles_),
        "composition": composition_facts(estimator.composition_),
        "title": " over ".join(
            (count_of(len(estimator.cluster_centers_), "cluster"), count_of(len(ledger.sites()), "site"))
        ),
        "summary": (
            f"{rows_sentence(facts)}, method {estimator.method}: {ledger.total('rounds')} rounds, "
            f"{ledger.total('bytes_up'):,} bytes sent, k-means cost {cost_sentence(facts)}.{_dropouts(ledger)}"
            f"{_disagreement(estimator)}"
        ),
        "landmarks": _landmarks(estimator),
    }


def _inputs(estimator: Any) -> list[str] | None:
    """The columns of the tables that clusters are made of; None where each site has its own."""
    return None if estimator.splits_columns else [str(name) for name in estimator.feature_names_in_]


def _landmarks(estimator: Any) -> dict[str, Any] | None:
    """The landmarks of a kernel method in original units, and their clusters; only where no landmark is a row, since
    sites showed groups, or sums with noise."""
    points = getattr(getattr(estimator.result_, "embedding", None), "landmarks", None)
    is_protected = estimator.min_group_ > 0 or estimator.privacy_ is not None
    if points is None or not is_protected or estimator.splits_columns:
        return None
    original = points if estimator.preparation_ is None else estimator.preparation_.undo(points)
    return {"points": original.tolist(), "clusters": estimator.label_rows(original).tolist()}


def _run_facts(estimator: Any, settings: Mapping[str, Any], policies: Mapping[str, Policy] | None) -> dict[str, Any]:
    """What ``result.json`` says of any run."""
    ledger = estimator.ledger_
    return {
        "schema": RESULT_SCHEMA,
        "coterie": coterie.__version__,
        "method": estimator.method,
        "settings": dict(settings),
        "public_seed": getattr(estimator, "public_seed_", None),
        "in_force": in_force(estimator, policies),
        **{name: ledger.total(name) for name in ("rounds", "floats_up", "bytes_up", "bytes_down")},
        "asked": asked_of(ledger),
        "lost": ledger.lost(),
    }


def n_held(estimator: Any, tables: Mapping[str, Table] | None) -> int | None:
    """How many rows the sites' tables hold; None where they are at their sites, or noise hides how many there are."""
    if not tables or estimator.privacy_ is not None:
        return None
    sizes = [table.n_rows for table in tables.values()]
    return sizes[0] if estimator.splits_columns else sum(sizes)


def halves_of(halves: Halves | None) -> dict[str, Any] | None:
    """What ``result.json`` says of the two halves of the sites."""
    if halves is None:
        return None
    parts = [
        {"sites": list(h.sites), "counts": h.counts.tolist(), "cost": h.cost, "row_cost": h.row_cost}
        for h in halves.halves or ()
    ]
    facts = {"disagree": halves.disagree, "clusters": halves.clusters, "costs_differ": halves.costs_differ}
    return {"compared": bool(parts), "why_not": halves.why_not, "parts": parts, **facts}


def _disagreement(estimator: Any) -> str:
    """Where the two halves of the sites differ, and what that means."""
    halves: Halves | None = estimator.halves_
    if halves is None:
        return ""
    if halves.halves is None:
        return f" Two halves of the sites were not compared: {halves.why_not}."
    if not halves.disagree:
        return " Two halves of the sites agree on the clusters."
    (one, other), least = halves.halves, COST_WORDS[estimator.cost_is_]
    texts = [f"cluster {i} holds {one.counts[i]:,.0f} and {other.counts[i]:,.0f} rows" for i in halves.clusters]
    if halves.costs_differ:
        texts.append(f"a row's mean cost is {least}{one.row_cost:.4g} and {least}{other.row_cost:.4g}")
    return (
        f" Two halves of the sites disagree ({', '.join(one.sites)}; {', '.join(other.sites)}): {'; '.join(texts)}. "
        "Sites that are unlike do this, and so does one that lies."
    )


def _dropouts(ledger: Ledger) -> str:
    """The sites that dropped out, and when."""
    dropouts = [f"{name} in round {since}" for name, since in ledger.lost().items()]
    return f" Dropped out: {', '.join(dropouts)}; earlier sums include their rows." if dropouts else ""


def write_run(
    folder: Path,
    estimator: Any,
    tables: Mapping[str, Table],
    settings: Mapping[str, Any],
    policies: Mapping[str, Policy] | None = None,
    *,
    show_rows: bool = False,
) -> dict[str, Any]:
    """Write all files of a run: result, centers, labels by site, ledger, certificate, model and report.

    If sites hold columns of the same rows, components by tag are written, too, and labels are matched by the sites'
    ``policies``. If the tables are at remote sites there are no labels. The report shows no row unless the owner of
    all ``tables`` asks to ``show_rows``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    choice = getattr(estimator, "choice_", None)
    if choice is not None:
        write_choice(folder, choice, estimator.preparation_)
    if isinstance(estimator, ChoiceModel):
        return _write_judged(folder, estimator, settings, policies)
    if not estimator.splits_columns:
        names = [str(name) for name in estimator.feature_names_in_]
        tables = {name: selected(table, names) for name, table in tables.items()}
    if estimator.splits_columns:
        columns = [f"component{i + 1}" for i in range(estimator.n_components_)]
        result = {**result_of(estimator, columns, settings, tables, policies), **_kernel_facts(estimator)}
        _write_components(folder / "components.parquet", estimator, columns)
    else:
        columns = estimator.center_columns() or [str(name) for name in estimator.feature_names_in_]
        result = result_of(estimator, columns, settings, tables, policies)
    for name, table in tables.items():
        path = folder / "labels" / f"{quote(name, safe='')}.parquet"
        if estimator.splits_columns:
            alignment_key = policies[name].alignment_key if policies else None
            _write_shared_labels(path, estimator, table, alignment_key, settings.get("key"))
        else:
            write_labels(estimator, table, path)
    with (folder / "centers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["cluster", ROWS_COLUMN[estimator.counts_are_], *columns])
        for i, (center, count) in enumerate(zip(result["centers"], result["counts"], strict=True)):
            writer.writerow([i, f"{count:.15g}", *center])
    _write_records(folder, estimator)
    save_model(estimator, folder / "model.json")
    if estimator.profiles_ is not None:
        write_profiles(folder / PROFILES, estimator.profiles_)
    if estimator.composition_ is not None:
        write_composition(folder / COMPOSITION, estimator.composition_)
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    write_page(folder, shown=shown_rows(estimator, tables) if show_rows else None)
    return result


def _write_records(folder: Path, estimator: Any) -> None:
    """What the server has of a run: its ledger, and what the sites signed."""
    estimator.ledger_.write(folder)
    if estimator.certificate_ is not None:
        text = msgspec.json.format(msgspec.json.encode(estimator.certificate_), indent=2)
        (folder / CERTIFICATE).write_bytes(text + b"\n")


def _write_judged(
    folder: Path, estimator: ChoiceModel, settings: Mapping[str, Any], policies: Mapping[str, Policy] | None
) -> dict[str, Any]:
    """Write the files of a run that judged numbers of clusters: no clusters, so no labels and no model."""
    _write_records(folder, estimator)
    ledger, choice = estimator.ledger_, estimator.choice_
    result = {
        **_run_facts(estimator, settings, policies),
        "columns": [str(name) for name in estimator.feature_names_in_],
        "centers": [],
        "counts": [],
        "choice": choice_facts(choice),
        "privacy": privacy_facts(estimator),
        **exactness_of(estimator),
        "title": f"Numbers of clusters over {count_of(len(ledger.sites()), 'site')}",
        "summary": (
            f"{'' if estimator.privacy_ is None else 'about '}{choice.n_rows:,.0f} rows, method {estimator.method}: "
            f"{ledger.total('rounds')} rounds, {ledger.total('bytes_up'):,} bytes sent."
            f"{choice_words(estimator.min_group_, estimator.cost_is_)}{_dropouts(ledger)}"
        ),
    }
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    write_page(folder)
    return result


def _kernel_facts(estimator: VerticalKernelKMeans) -> dict[str, Any]:
    return {"gamma": estimator.gamma_, "local_ranks": estimator.local_ranks_, "error_bound": estimator.error_bound_}


def _write_components(path: Path, estimator: VerticalKernelKMeans, columns: list[str]) -> None:
    """What the server has of every row: its tag, its components and its cluster."""
    named = {} if estimator.tags_ is None else {"tag": pa.array(estimator.tags_, pa.uint64())}
    parts = {name: estimator.embedding_[:, i] for i, name in enumerate(columns)}
    pq.write_table(pa.table({**named, **parts, "cluster": estimator.labels_}), private_file(path))


def _write_shared_labels(
    path: Path, estimator: VerticalKernelKMeans, table: Table, alignment_key: bytes | None, key: str | None
) -> None:
    """The labels in the order of a site's rows, matched by tag if rows have keys."""
    keys, labels = keys_of(table), estimator.labels_
    named = {} if keys is None else {key if key and key != "cluster" else "key": list(keys)}
    if estimator.tags_ is not None and keys is not None:
        if alignment_key is None:
            raise InputError("the site's policy has no alignment_key; set it to match rows by key.")
        tags = row_tags(keys, alignment_key)
        places = np.minimum(np.searchsorted(estimator.tags_, tags), len(estimator.tags_) - 1)
        if (estimator.tags_[places] != tags).any():
            raise Unaligned("a site's rows do not match the clustered rows: the keys or the alignment_key changed.")
        labels = labels[places]
    pq.write_table(pa.table({**named, "cluster": pa.array(labels, pa.int32())}), private_file(path))


def shown_rows(estimator: FederatedKMeans, tables: Mapping[str, Table]) -> ShownRows:
    """A sample of the rows of all sites, at regular steps, and their labels."""
    n_held = sum(table.n_rows for table in tables.values())
    step = max(1, -(-n_held // SHOWN_ROWS))
    rows = [block.rows[::step] for table in tables.values() for block in table.raw_blocks()]
    raw = np.concatenate(rows).astype(np.float64)
    labels = estimator.label_rows(raw)
    return ShownRows(raw[labels >= 0], labels[labels >= 0].astype(np.int64), n_held)
