"""A fitted model in one readable file, without pickle: parameters, columns, preparation, and what the run found."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from coterie.errors import InputError, MalformedMessage
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.registry import KINDS
from coterie.files import MEGABYTE, read_bounded
from coterie.messages.site_api import Table
from coterie.methods.shared.plain import listed, read, written
from coterie.methods.shared.prepared import Preparation
from coterie.methods.shared.privacy import Privacy, PrivacySpent
from coterie.methods.shared.selection import selected
from coterie.runtime.ledger import Ledger
from coterie.sites.tables import Problem, Reading
from coterie.sites.tables.alike import examined_alike

MODEL_SCHEMA = 5
"""4 did not say what stands for missing values."""
READ_SCHEMAS = (4, 5)
MOST_BYTES = 256 * MEGABYTE
"""Of a model file."""

_DAMAGED = (MalformedMessage, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What values that do not fit together end in."""
LONGEST = 400
"""Characters of a file that an error repeats."""


class _Model(msgspec.Struct):
    schema: int
    kind: str
    coterie: str
    parameters: dict[str, Any]
    columns: list[str]
    preparation: Preparation | None
    result: dict[str, Any]
    privacy: PrivacySpent | None = None
    na: dict[str, list[Any]] = msgspec.field(default_factory=dict)
    """What stood for missing values, by column of the files."""
    levels: list[str] = []
    """The columns of text whose categories sites agreed on."""


def save_model(estimator: FederatedEstimator, path: str | Path) -> Path:
    """Write a fitted model: its columns, its preparation, and its centers, its embedding or both."""
    is_model = estimator.splits_columns or hasattr(estimator, "transform")
    if type(estimator).__name__ not in KINDS or not hasattr(estimator, "result_") or not is_model:
        raise InputError(f"{type(estimator).__name__} is not a fitted model; fit it before saving.")
    names = getattr(estimator, "feature_names_in_", None)
    model = _Model(
        MODEL_SCHEMA,
        type(estimator).__name__,
        version("coterie"),
        {name: value for name, value in estimator.settings().items() if _is_plain(value) or name == "privacy"},
        [f"x{i}" for i in range(estimator.n_features_in_)] if names is None else [str(n) for n in names],
        estimator.preparation_,
        written(estimator.result_, estimator.result_type),
        estimator.privacy_,
        dict(estimator.na_),
        list(estimator.levels_),
    )
    path = Path(path)
    path.write_text(json.dumps(msgspec.to_builtins(model, enc_hook=listed), indent=1) + "\n")
    return path


def load_model(path: str | Path) -> Any:
    """Read a model written by :func:`save_model`; anything else is one clear error."""
    path = Path(path)
    try:
        raw: Any = json.loads(read_bounded(path, MOST_BYTES))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except InputError:
        raise
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{path}: this is not a model file of coterie.") from None
    if not isinstance(raw, dict) or not {"schema", "kind", "coterie"} <= raw.keys():
        raise InputError(f"{path}: this is not a model file of coterie.")
    if raw["schema"] not in READ_SCHEMAS:
        raise InputError(
            f"{path}: model format {_short(raw['schema'])} is not known to coterie {version('coterie')} (it knows "
            f"{READ_SCHEMAS[0]} and {MODEL_SCHEMA}); fit the model again, or use the coterie that wrote it "
            f"({_short(raw['coterie'])})."
        )
    if not isinstance(raw["kind"], str) or raw["kind"] not in KINDS:
        raise InputError(f"{path}: this is not a model file of coterie.")
    try:
        return _fitted(read(raw, _Model))
    except _DAMAGED as problem:
        raise InputError(f"{path}: the model file is damaged ({_short(problem)}).") from None


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _fitted(model: _Model) -> FederatedEstimator:
    given = model.parameters
    if given.get("privacy") is not None:
        given = {**given, "privacy": Privacy.of(given["privacy"])}
    estimator = KINDS[model.kind](**given)
    estimator.begin()
    estimator.n_features_in_ = len(model.columns)
    estimator.set_result(read(model.result, estimator.result_type), model.preparation, Ledger())
    estimator.privacy_, estimator.na_, estimator.levels_ = model.privacy, model.na, model.levels
    if not estimator.splits_columns:  # there rows are embedded by their sites
        ranges = None if model.preparation is None else model.preparation.ranges
        estimator.transform(np.zeros((1, len(model.columns))) if ranges is None else ranges.low[None])
    estimator.feature_names_in_ = np.array(model.columns, dtype=object)
    estimator._matches_names = True
    return estimator


def table_for(estimator: FederatedEstimator, source: object, how: Reading) -> tuple[Table, list[Problem]]:
    """Rows read as those were that the model was fitted to, and what is wrong with them; ``how`` adds codes for
    missing values, and how a CSV file is written."""
    names = [str(name) for name in estimator.feature_names_in_]
    name = Path(source).name if isinstance(source, str | Path) else "table"
    table, problems = examined_alike(source, names, estimator.na_, estimator.levels_, how, name=name)
    return (table if problems else selected(table, names)), problems


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | list)
