"""A map of the clusters on two components of what was released, without a row."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np

from coterie.arrays import Floats
from coterie.report.markup import (
    RunFiles,
    ShownRows,
    colour_class,
    element,
    number,
    paragraph,
    percent,
    place,
    section,
)
from coterie.report.portrait import Portrait, portrait_of

WIDTH, HEIGHT, EDGE = 720, 460, 46
SMALLEST, LARGEST = 5.0, 22.0
"""Radii of clusters."""
NAMED = 4
"""Columns that are named for each axis."""
RANK = 1e-9
"""A component of less than this share of the first one's size is none."""


@dataclass(frozen=True)
class Plane:
    """Two axes in the space of standardised columns."""

    portrait: Portrait
    axes: Floats
    """A row a column, a column an axis."""
    shares: tuple[float, ...]
    """Of the variance between clusters, by axis."""

    @property
    def centers(self) -> Floats:
        """Of clusters, on the plane."""
        return np.asarray(self.portrait.standard_means @ self.axes)

    def spread(self, cluster: int) -> Floats | None:
        """The covariance of a cluster on the plane, its columns taken as uncorrelated; None where it is not known."""
        sds = self.portrait.values["sd"][cluster]
        if np.isnan(sds).all():
            return None
        scaled = np.divide(sds, self.portrait.whole_sd, out=np.zeros(len(sds)), where=self.portrait.whole_sd > 0)
        return np.asarray((self.axes * np.nan_to_num(scaled)[:, None] ** 2).T @ self.axes)

    def put(self, rows: Floats, columns: list[str]) -> Floats:
        """Rows of these columns, on the plane; columns that are not among them count as those of all rows."""
        places = {name: i for i, name in enumerate(columns)}
        point = np.zeros((len(rows), len(self.portrait.columns)))
        for j, name in enumerate(self.portrait.columns):
            sd = self.portrait.whole_sd[j]
            if name in places and sd > 0:
                point[:, j] = (rows[:, places[name]] - self.portrait.whole_mean[j]) / sd
        return np.asarray(np.nan_to_num(point) @ self.axes)


def plane_of(portrait: Portrait) -> Plane:
    """The first two components of the centers weighted by size; where they have fewer, columns that vary most."""
    means, weights = portrait.standard_means, np.sqrt(np.maximum(portrait.sizes, 0.0))[:, None]
    away = weights * (means - np.average(means, axis=0, weights=weights[:, 0] ** 2 + 1e-9))
    values, rows = np.linalg.svd(away, full_matrices=False)[1:]
    components = [row for value, row in zip(values, rows, strict=True) if value > RANK * max(values[0], 1e-300)]
    kept = components[:2]
    for j in np.argsort(-np.nan_to_num(portrait.values["sd"]).max(axis=0) / np.maximum(portrait.whole_sd, 1e-300)):
        if len(kept) == min(2, means.shape[1]):
            break
        unit = np.eye(1, means.shape[1], int(j))[0]
        rest = unit - sum((unit @ axis) * axis for axis in kept)
        if np.linalg.norm(rest) > 1e-6:
            kept.append(rest / np.linalg.norm(rest))
    axes = np.zeros((means.shape[1], 2))
    for i, row in enumerate(kept):
        axes[:, i] = row if row[np.argmax(np.abs(row))] > 0 else -row
    total = float((values**2).sum()) or 1.0
    return Plane(portrait, axes, tuple(float(value**2) / total for value in values[: len(components)][:2]))


_AXES = (
    "The axes are the first two components of the clusters' means, weighted by size, in standard deviations of all "
    "rows."
)
_ELLIPSES = (
    "An ellipse spans one standard deviation of a cluster. It is an approximation: it is made of the deviations of "
    "single columns, as if these were uncorrelated within a cluster."
)


def map_of_clusters(run: RunFiles) -> str:
    """The map, and what its axes are made of; nothing where columns are not known."""
    portrait = portrait_of(run.result) if run.result["centers"] else None
    if portrait is None:
        return ""
    plane = plane_of(portrait)
    drawing = _Drawing(plane, run)
    words = _AXES
    if portrait.is_of_profiles:
        words += f" {_ELLIPSES}"
    details = element(
        "p",
        "Point at a cluster, or move to one with Tab.",
        class_="details controls",
        id="map-details",
        aria_live="polite",
    )
    return section(
        "map",
        "A map of the clusters",
        paragraph(f"{words} {drawing.words}"),
        details,
        element("div", drawing.svg(), class_="wide", tabindex=0, role="region", aria_label="map of the clusters"),
        *(paragraph(_axis_words(plane, i), class_="note") for i in range(2)),
    )


def _axis_words(plane: Plane, axis: int) -> str:
    """What an axis rises and falls with."""
    loads = plane.axes[:, axis]
    order = [int(i) for i in np.argsort(-np.abs(loads), kind="stable")[:NAMED] if abs(loads[i]) > 0.05]
    parts = [f"{plane.portrait.columns[i]} ({loads[i]:+.2f})" for i in order]
    share = (
        f" has {percent(plane.shares[axis])} of the variance between clusters and" if axis < len(plane.shares) else ""
    )
    return f"The {('first', 'second')[axis]} component{share} rises or falls with {', '.join(parts) or 'nothing'}."


class _Drawing:
    """One map."""

    def __init__(self, plane: Plane, run: RunFiles) -> None:
        self.plane, self.run = plane, run
        columns = list(run.result.get("inputs") or ())
        marks = run.result.get("landmarks")
        self.landmarks = None if not marks else (plane.put(np.array(marks["points"]), columns), marks["clusters"])
        shown: ShownRows | None = run.shown
        self.rows = None if shown is None else plane.put(shown.rows, columns)
        points = [self._reach(cluster) for cluster in range(len(plane.portrait.sizes))]
        points += [] if self.landmarks is None else [self.landmarks[0]]
        points += [] if self.rows is None else [self.rows]
        reach = np.concatenate(points)
        self.low, high = reach.min(axis=0), reach.max(axis=0)
        widths = np.array([WIDTH - 2 * EDGE, HEIGHT - 2 * EDGE])
        self.scale = float((widths / np.maximum(high - self.low, 1e-9)).min())
        self.shift = (widths - self.scale * (high - self.low)) / 2 + EDGE

    @property
    def words(self) -> str:
        """What is on the map beside clusters."""
        if self.run.shown is not None:
            return (
                f"Small dots are {len(self.run.shown.rows):,} of {self.run.shown.n_held:,} rows, shown since the "
                "owner of all data asked for it."
            )
        marks = "Small dots are landmarks, averages of rows that the method released. " if self.landmarks else ""
        return f"{marks}It shows no row."

    def svg(self) -> str:
        """The drawing; clusters come last, so that they are above all else."""
        parts = [self._axes()]
        if self.rows is not None and self.run.shown is not None:
            parts += self._dots(self.rows, self.run.shown.labels.tolist(), 1.8)
        if self.landmarks is not None:
            parts += self._dots(*self.landmarks, 3)
        order = [int(cluster) for cluster in np.argsort(-self.plane.portrait.sizes, kind="stable")]
        parts += [self._ellipse(cluster) for cluster in order]
        parts += [self._cluster(cluster) for cluster in order]
        label = f"Map of {len(order)} clusters on two components"
        return element(
            "svg", "".join(parts), viewBox=f"0 0 {WIDTH} {HEIGHT}", class_="map", role="group", aria_label=label
        )

    def _reach(self, cluster: int) -> Floats:
        center, spread = self.plane.centers[cluster], self.plane.spread(cluster)
        size = np.sqrt(np.diag(spread)) if spread is not None else np.zeros(2)
        return np.array([center - size, center + size])

    def _at(self, point: Floats) -> tuple[float, float]:
        x, y = self.shift + self.scale * (point - self.low)
        return float(x), float(HEIGHT - y)

    def _axes(self) -> str:
        names = [f"{name} component" for name in ("first", "second")]
        shares = [*map(percent, self.plane.shares), "", ""]
        texts = [f"{name} ({share})" if share else name for name, share in zip(names, shares, strict=False)]
        frame = element("rect", x=1, y=1, width=WIDTH - 2, height=HEIGHT - 2, rx=6, class_="frame")
        across = element("text", texts[0], x=WIDTH / 2, y=HEIGHT - 10, text_anchor="middle")
        up = element("text", texts[1], transform=f"translate(18 {HEIGHT / 2}) rotate(-90)", text_anchor="middle")
        return frame + across + up

    def _dots(self, points: Floats, labels: list[int], radius: float) -> list[str]:
        groups: dict[int, list[str]] = {}
        for point, label in zip(points, labels, strict=True):
            x, y = self._at(point)
            groups.setdefault(label, []).append(element("circle", cx=place(x), cy=place(y), r=radius))
        return [
            element("g", "".join(dots), class_=f"dots {colour_class(label)}" if label >= 0 else "dots")
            for label, dots in sorted(groups.items())
        ]

    def _cluster(self, cluster: int) -> str:
        portrait = self.plane.portrait
        x, y = self._at(self.plane.centers[cluster])
        share = max(float(portrait.sizes[cluster]), 0.0) / max(float(portrait.sizes.max()), 1e-300)
        radius = SMALLEST + (LARGEST - SMALLEST) * float(np.sqrt(share))
        colour, about = colour_class(cluster), self._about(cluster)
        parts = [element("title", escape(about))]
        parts.append(element("circle", cx=place(x), cy=place(y), r=place(radius), class_=colour))
        parts.append(element("text", str(cluster), x=place(x), y=place(y + 4.5), text_anchor="middle", class_="name"))
        return element("g", "".join(parts), tabindex=0, role="img", aria_label=about, data_cluster=cluster)

    def _ellipse(self, cluster: int) -> str:
        spread = self.plane.spread(cluster)
        if spread is None:
            return ""
        x, y = self._at(self.plane.centers[cluster])
        values, vectors = np.linalg.eigh(spread)
        second, first = (self.scale * float(value) for value in np.sqrt(np.maximum(values, 0.0)))
        turn = -float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
        turn = (turn + 90.0) % 180.0 - 90.0  # an axis has no direction
        return element(
            "ellipse",
            rx=place(first),
            ry=place(second),
            transform=f"translate({place(x)} {place(y)}) rotate({place(turn)})",
            class_=f"spread {colour_class(cluster)}",
        )

    def _about(self, cluster: int) -> str:
        from coterie.report.labels import size_text

        portrait = self.plane.portrait
        order = np.argsort(-np.abs(portrait.standard_means[cluster]), kind="stable")[:NAMED]
        columns = [f"{portrait.columns[i]} {number(float(portrait.values['mean'][cluster, i]))}" for i in order]
        size = size_text(self.run.result, float(portrait.sizes[cluster]))
        return f"cluster {cluster}: {size} rows; {', '.join(columns)}"
