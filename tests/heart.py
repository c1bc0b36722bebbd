"""Four hospitals' patients as hospitals export them: text, ids, codes for missing values, columns in other orders,
decimal commas and another encoding.

The values are those of the heart disease data (UCI) where the folder of shared data has them, and otherwise drawn to
look like them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va_long_beach")
SIZES = (303, 294, 123, 200)
NUMBERS = ("age", "trestbps", "chol", "thalach", "oldpeak", "ca")
WORDS: Mapping[str, Mapping[int, str]] = {
    "sex": {0: "female", 1: "male"},
    "cp": {1: "typical", 2: "atypical", 3: "non-anginal", 4: "asymptomatic"},
    "fbs": {0: "no", 1: "yes"},
    "restecg": {0: "normal", 1: "ST-T", 2: "hypertrophy"},
    "exang": {0: "no", 1: "yes"},
    "slope": {1: "up", 2: "flat", 3: "down"},
    "thal": {3: "normal", 6: "fixed", 7: "reversible"},
}
"""By text column the word of each number."""
COLUMNS = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca")
COLUMNS += ("thal",)
CATEGORIES = {column: list(words.values()) for column, words in WORDS.items()}
NA = {"chol": [0], "trestbps": [0], "*": ["?"]}
"""What stands for a missing value: no cholesterol and no pressure is 0, and one hospital writes a question mark."""


@dataclass(frozen=True)
class Export:
    """How one hospital writes its file."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    missing: str = ""
    is_reversed: bool = False
    ward: tuple[str, ...] = ()
    """Names of wards, in a column that the other hospitals do not have."""


EXPORTS = {
    "cleveland": Export(),
    "hungarian": Export(missing="?", is_reversed=True),
    "switzerland": Export(";", ",", "cp1252", ward=("Zürich", "Genève")),
    "va_long_beach": Export("\t", ".", "utf-16", is_reversed=True),
}


def heart_rows() -> dict[str, Floats]:
    """By hospital the rows of ``COLUMNS``; NaN where a value is missing."""
    path = Path(os.environ.get("COTERIE_DATA", "")) / "heart_disease.npz"
    if "COTERIE_DATA" not in os.environ or not path.is_file():
        return {name: _drawn(seed, n) for seed, (name, n) in enumerate(zip(HOSPITALS, SIZES, strict=True))}
    with np.load(path) as data:
        rows, site = data["X"].astype(np.float64), data["site"]
    return {name: _no_zeros(rows[site == i]) for i, name in enumerate(HOSPITALS)}


def _no_zeros(rows: Floats) -> Floats:
    """Zeros for cholesterol and pressure are missing values: nobody has none."""
    zero = (rows == 0) & np.isin(COLUMNS, [column for column in NA if column != "*"])
    return np.where(zero, np.nan, np.round(rows, 1))


def _drawn(seed: int, n: int) -> Floats:
    """A hospital that looks like the real ones: two kinds of patients, and more missing values in the later ones."""
    rng = np.random.default_rng(seed)
    is_ill = rng.random(n) < 0.35 + 0.15 * seed
    middles = {"age": (57, 51), "trestbps": (136, 129), "chol": (250, 230), "thalach": (128, 152)}
    middles |= {"oldpeak": (1.5, 0.4)}
    deviations = {"age": 9, "trestbps": 18, "chol": 50, "thalach": 22, "oldpeak": 0.8}
    rows = np.empty((n, len(COLUMNS)))
    for j, column in enumerate(COLUMNS):
        if column in middles:
            drawn = rng.normal(np.where(is_ill, *middles[column]), deviations[column])
            rows[:, j] = np.round(np.abs(drawn), 1) if column == "oldpeak" else np.round(np.maximum(drawn, 30))
        else:
            codes = list(WORDS.get(column, range(4)))
            drawn = rng.normal(np.where(is_ill, 0.7, 0.3) * (len(codes) - 1), 0.35 * len(codes))
            rows[:, j] = np.array(codes)[np.clip(np.round(drawn), 0, len(codes) - 1).astype(int)]
    often = np.where(np.isin(COLUMNS, ("slope", "ca", "thal")), 0.2 * seed, 0.03)
    rows[rng.random(rows.shape) < often] = np.nan
    return rows


def write_heart(folder: Path) -> dict[str, Path]:
    """Write the four files; their paths by hospital."""
    paths = {}
    for name, rows in heart_rows().items():
        paths[name] = folder / f"{name}.csv"
        text = "".join(f"{line}\n" for line in _lines(name, rows, EXPORTS[name]))
        paths[name].write_bytes(text.encode(EXPORTS[name].encoding))
    return paths


def _lines(name: str, rows: Floats, export: Export) -> list[str]:
    """The lines of a file: a patient's id, its columns in their order, and its ward where there is one."""
    columns = list(COLUMNS[::-1] if export.is_reversed else COLUMNS)
    lines = [export.separator.join(["patient", *columns, *(["ward"] if export.ward else [])])]
    for i, row in enumerate(rows):
        cells = [_cell(column, row[COLUMNS.index(column)], export) for column in columns]
        ward = [export.ward[i % len(export.ward)]] if export.ward else []
        lines.append(export.separator.join([f"{name[:2].upper()}{i:04d}", *cells, *ward]))
    return lines


def _cell(column: str, value: float, export: Export) -> str:
    if np.isnan(value):
        return "0" if column in NA else export.missing
    return WORDS[column][int(value)] if column in WORDS else f"{value:g}".replace(".", export.decimal)
