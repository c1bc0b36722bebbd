"""The result files of a run over columns of the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.errors import InputError, Unaligned
from coterie.estimators.vertical import VerticalKernelKMeans
from coterie.messages.site_api import Table, keys_of
from coterie.methods.shared.alignment import row_tags
from coterie.report.outputs import result_of, write_result
from coterie.report.pictures import draw_clusters_by_site
from coterie.sites.policy import Policy

DRAWN_ROWS = 4000


def labels_at_site(
    estimator: VerticalKernelKMeans, table: Table, alignment_key: bytes | None
) -> npt.NDArray[np.int32]:
    """The labels in the order of a site's rows, matched by tag if rows have keys."""
    keys = keys_of(table)
    if estimator.tags_ is None or keys is None:
        return estimator.labels_
    if alignment_key is None:
        raise InputError("the site's policy has no alignment_key; set it to match rows by key.")
    tags = row_tags(keys, alignment_key)
    places = np.minimum(np.searchsorted(estimator.tags_, tags), len(estimator.tags_) - 1)
    if (estimator.tags_[places] != tags).any():
        raise Unaligned("a site's rows do not match the clustered rows: the keys or the alignment_key changed.")
    return estimator.labels_[places]


def write_vertical_run(
    folder: Path,
    estimator: VerticalKernelKMeans,
    tables: Mapping[str, Table],
    policies: Mapping[str, Policy],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Write result, components by tag, labels by site, ledger, model, picture and report."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = [f"component{i + 1}" for i in range(estimator.n_components_)]
    low, high = min(estimator.local_ranks_.values()), max(estimator.local_ranks_.values())
    result = {
        **result_of(estimator, columns, settings),
        "gamma": estimator.gamma_,
        "local_ranks": estimator.local_ranks_,
        "error_bound": estimator.error_bound_,
        "caption": "The first two components of the rows, coloured by cluster. Crosses are centers. The components "
        f"were computed from {low if low == high else f'{low} to {high}'} eigenpairs of each site's kernel matrix.",
    }
    _write_components(folder / "components.parquet", estimator, columns)
    for name, table in tables.items():
        own = labels_at_site(estimator, table, policies[name].alignment_key)
        _write_labels(folder / "labels" / f"{quote(name, safe='')}.parquet", table, own, settings.get("key"))
    _draw(folder / "clusters.png", estimator)
    write_result(folder, estimator, result)
    return result


def _write_components(path: Path, estimator: VerticalKernelKMeans, columns: list[str]) -> None:
    """What the server has of every row: its tag, its components and its cluster."""
    named = {} if estimator.tags_ is None else {"tag": pa.array(estimator.tags_, pa.uint64())}
    parts = {name: estimator.embedding_[:, i] for i, name in enumerate(columns)}
    pq.write_table(pa.table({**named, **parts, "cluster": estimator.labels_}), path)


def _write_labels(path: Path, table: Table, labels: npt.NDArray[np.int32], key: str | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = keys_of(table)
    named = {} if keys is None else {key if key and key != "cluster" else "key": list(keys)}
    pq.write_table(pa.table({**named, "cluster": pa.array(labels, pa.int32())}), path)


def _draw(path: Path, estimator: VerticalKernelKMeans) -> None:
    step = max(1, len(estimator.embedding_) // DRAWN_ROWS)
    points, centers = _two(estimator.embedding_[::step]), _two(estimator.cluster_centers_)
    labels = estimator.labels_[::step]
    draw_clusters_by_site(
        path,
        points,
        np.full(len(points), "all rows"),
        {"clusters": {"all rows": labels}},
        centers,
        ["first component", "second component"],
    )


def _two(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.hstack([points[:, :2], np.zeros((len(points), max(0, 2 - points.shape[1])))])
