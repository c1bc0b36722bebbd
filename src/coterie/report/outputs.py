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
import numpy.typing as npt
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
from coterie.report.choices import CHOICE, CHOICE_PICTURE, choice_facts, choice_words, write_choice
from coterie.report.in_force import in_force
from coterie.report.labels import COST_WORDS, ROWS_COLUMN, cost_sentence, exactness_of, facts_of, rows_sentence
from coterie.report.page import write_page
from coterie.report.pictures import draw_clusters_by_site
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
    *("model.json", "clusters.png", "report.html", PROFILES, COMPOSITION, CERTIFICATE, CHOICE, CHOICE_PICTURE),
)
"""What a run writes at a server."""
DRAWN_ROWS, DRAWN_SITES = 1500, 12
DRAWN_SHARED_ROWS = 4000
"""Of a clustering of rows whose columns are at several sites."""


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
        "caption": (
            "The plane of the two main directions of the centers. Each panel shows a sample of a site's rows, "
            "coloured by cluster, over the other sites' rows in grey. Crosses are centers."
        ),
    }


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
) -> dict[str, Any]:
    """Write all files of a run: result, centers, labels by site, ledger, certificate, model, picture and report.

    If sites hold columns of the same rows, components by tag are written, too, and labels are matched by the sites'
    ``policies``. If the tables are at remote sites there are no labels, and no picture of rows the server never has.
    A differentially private run has no picture, either: it would show rows.
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
        _draw_components(folder / "clusters.png", estimator)
    else:
        columns = estimator.center_columns() or [str(name) for name in estimator.feature_names_in_]
        result = result_of(estimator, columns, settings, tables, policies)
        if tables and estimator.privacy_ is None:  # a picture shows rows
            _draw(folder / "clusters.png", estimator, tables)
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
    write_page(folder)
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
    return result


def _kernel_facts(estimator: VerticalKernelKMeans) -> dict[str, Any]:
    low, high = min(estimator.local_ranks_.values()), max(estimator.local_ranks_.values())
    return {
        "gamma": estimator.gamma_,
        "local_ranks": estimator.local_ranks_,
        "error_bound": estimator.error_bound_,
        "caption": "The first two components of the rows, coloured by cluster. Crosses are centers. The components "
        f"were computed from {low if low == high else f'{low} to {high}'} eigenpairs of each site's kernel matrix.",
    }


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


def _draw_components(path: Path, estimator: VerticalKernelKMeans) -> None:
    """Draw the first two components of the rows; with a single one, the second is zero."""
    step = max(1, len(estimator.embedding_) // DRAWN_SHARED_ROWS)
    plane = np.eye(estimator.embedding_.shape[1], 2)
    rows, labels = estimator.embedding_[::step], estimator.labels_[::step]
    draw_clusters_by_site(
        path,
        rows @ plane,
        np.full(len(rows), "all rows"),
        {"clusters": {"all rows": labels}},
        estimator.cluster_centers_ @ plane,
        ["first component", "second component"],
        {"all rows": len(estimator.embedding_)},
    )


def _draw(path: Path, estimator: FederatedKMeans, tables: Mapping[str, Table]) -> None:
    """Draw a sample of rows of the first sites in the plane of the centers' main directions."""
    samples = {name: _sample(estimator, tables[name]) for name in list(tables)[:DRAWN_SITES]}
    centers = estimator._prepared_centers
    middle = centers.mean(axis=0)
    plane = np.linalg.svd(centers - middle, full_matrices=True)[2].T @ np.eye(len(middle), 2)
    draw_clusters_by_site(
        path,
        (np.concatenate([rows for rows, _ in samples.values()]) - middle) @ plane,
        np.repeat(list(samples), [len(rows) for rows, _ in samples.values()]),
        {"clusters": {name: labels for name, (_, labels) in samples.items()}},
        (centers - middle) @ plane,
        ["first direction", "second direction"],
        {name: tables[name].n_rows for name in samples},
    )


def _sample(estimator: FederatedKMeans, table: Table) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Prepared rows at regular steps of the table, and their labels."""
    step = max(1, table.n_rows // DRAWN_ROWS)
    rows = [block.rows[::step] for block in table.raw_blocks()]
    raw = np.concatenate(rows)[:DRAWN_ROWS] if rows else np.zeros((0, len(table.columns)))
    labels = estimator.label_rows(raw)
    kept = labels >= 0
    return estimator.prepared_rows(raw[kept]).astype(np.float64), labels[kept]
