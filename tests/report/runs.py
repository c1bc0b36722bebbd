"""Finished runs of every kind, for tests of their pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from coterie.cli.jobs import Job
from coterie.examples.demo import demo, write_demo
from tests.federations import blobs
from tests.heart import HOSPITALS, write_heart

NAMES = ("north", "south", "west")
TWO_RINGS = {"method": "landmarks", "settings": {"gamma": 2.0}}


def of_demo(folder: Path) -> Path:
    """The demonstration."""
    return write_demo(demo(), folder).parent


def of_heart(folder: Path) -> Path:
    """Four hospitals: text columns, missing values, the composition by site."""
    write_heart(folder)
    data = [str(folder / f"{name}.csv") for name in HOSPITALS]
    reading = {"na": {"*": ["?"], "chol": ["0"], "trestbps": ["0"]}, "ignore": ["patient", "ward"]}
    return run(folder, data, clusters=4, policy="research", scale="standard", missing="mean", **reading)


def of_rings(folder: Path) -> Path:
    """Kernel k-means of two rings, by landmarks."""
    rng = np.random.default_rng(0)
    turn, far = rng.uniform(0, 2 * np.pi, 360), np.where(np.arange(360) % 2, 1.0, 3.0) + rng.normal(size=360) * 0.1
    rows = np.column_stack([far * np.cos(turn), far * np.sin(turn)])
    return run(folder, written(folder, rows, ("east", "north")), clusters=2, **TWO_RINGS)


def of_departments(folder: Path) -> Path:
    """Three departments with columns of the same patients."""
    rows = blobs(90, 6, 3, seed=0)
    data = []
    for i, name in enumerate(NAMES):
        order = np.random.default_rng(i).permutation(90)
        lines = [f"P{j:03d},{rows[j, 2 * i]:.6f},{rows[j, 2 * i + 1]:.6f}" for j in order]
        data.append(text_file(folder / f"{name}.csv", [f"patient,{name}1,{name}2", *lines]))
    policy = folder / "site.toml"
    rules = f'per_site_results = "rows"\nalignment_key = "{"ab" * 32}"\n[method.vertical-kernel-pca]\n'
    policy.write_text(f'{rules}protection = "none"\n')
    return run(folder, data, clusters=3, method="vertical-kernel-pca", key="patient", policy=str(policy))


def of_choice(folder: Path) -> Path:
    """Numbers of clusters, judged."""
    return run(folder, written(folder, blobs(240, 3, 3, seed=2), ("a", "b", "c")), clusters="2-5", scale="standard")


def of_private(folder: Path) -> Path:
    """A differentially private run with profiles."""
    rows = np.clip(blobs(900, 2, 3, seed=2), -9.0, 9.0)
    ranges = {"a": [-9, 9], "b": [-9, 9]}
    data = written(folder, rows, ("a", "b"))
    return run(folder, data, clusters=3, privacy={"epsilon": 4.0}, ranges=ranges, profile=True)


def of_many_columns(folder: Path) -> Path:
    """Two thousand columns."""
    rows = np.random.default_rng(0).normal(size=(150, 2000))
    rows[:50, :300] += 2.0
    return run(folder, written(folder, rows, [f"gene {j:04d}" for j in range(2000)]), clusters=3, policy="simulation")


def of_phones(folder: Path) -> Path:
    """Activity of 36 phones, 43 columns (WISDM)."""
    from coterie_studies.datasets import wisdm

    data = wisdm()
    paths = []
    for name, rows in data.by_site().items():
        paths.append(folder / f"phone{name}.npz")
        np.savez(paths[-1], X=rows, columns=np.array(data.columns))
    return run(folder, [str(path) for path in paths], clusters=6, scale="standard", missing="mean")


QUICK: dict[str, Callable[[Path], Path]] = {
    "demo": of_demo,
    "heart": of_heart,
    "kernel": of_rings,
    "vertical": of_departments,
    "choice": of_choice,
    "private": of_private,
}
SLOW: dict[str, Callable[[Path], Path]] = {"columns": of_many_columns, "phones": of_phones}


def run(folder: Path, data: list[str], **options: Any) -> Path:
    """Run a job over files; the folder of its results."""
    out = folder / "out"
    Job(data=data, out=str(out), **options).run(resume=False, watch=lambda _: None)
    return out


def written(folder: Path, rows: np.ndarray, names: Any) -> list[str]:
    """The rows as files of three sites."""
    parts = zip(NAMES, np.array_split(rows, len(NAMES)), strict=True)
    return [
        text_file(folder / f"{name}.csv", [",".join(names), *(",".join(f"{v:.9f}" for v in row) for row in part)])
        for name, part in parts
    ]


def text_file(path: Path, lines: list[str]) -> str:
    """Write lines; the path as text."""
    path.write_text("\n".join(lines) + "\n")
    return str(path)
