"""A study's run folder: what it is of, a line a finished trial, and nothing that an interruption can spoil."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coterie.errors import InputError

__all__ = ["STUDY_SCHEMA", "Finished", "RunFolder", "Scope", "versions"]

STUDY_SCHEMA = 1


@dataclass(frozen=True)
class Scope:
    """How much of a study is run."""

    quick: bool
    seeds: int

    @property
    def name(self) -> str:
        """``quick`` or ``full``."""
        return "quick" if self.quick else "full"


@dataclass(frozen=True)
class Finished:
    """What a trial measured, or why it was skipped."""

    key: str
    values: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""
    seconds: float = 0.0


def versions() -> dict[str, str]:
    """What decides the numbers of a study besides its own lines."""
    made = {name: version(name) for name in ("coterie", "numpy", "scipy", "scikit-learn")}
    return {"python": platform.python_version(), **made}


class RunFolder:
    """``study.json`` and ``trials.jsonl`` of one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._header, self._lines = path / "study.json", path / "trials.jsonl"

    def begin(self, study: str, scope: Scope) -> None:
        """Make a new run folder; one that already holds something is not touched."""
        if self._header.exists():
            raise InputError(f"{self.path} already holds a study; resume it, or choose another folder.")
        if self.path.is_dir() and any(entry.name != "study.json.new" for entry in self.path.iterdir()):
            raise InputError(f"{self.path} holds other files; choose an empty or a new folder.")
        self.path.mkdir(parents=True, exist_ok=True)
        self._write_header(
            {
                "schema": STUDY_SCHEMA,
                "study": study,
                "scope": scope.name,
                "seeds": scope.seeds,
                "versions": versions(),
                "resumed_with": [],
            }
        )

    @property
    def is_begun(self) -> bool:
        """Whether there is something to resume."""
        return self._header.exists()

    def resume(self, study: str, quick: bool | None, seeds: int | None) -> Scope:
        """Check that this is the folder of that study and return its scope."""
        header = self._read_header()
        if header["study"] != study:
            raise InputError(
                f"{self.path} holds the study {header['study']!r}, not {study!r}; choose another folder."
            )
        scope = Scope(header["scope"] == "quick", int(header["seeds"]))
        asked = Scope(scope.quick if quick is None else quick, scope.seeds if seeds is None else seeds)
        if asked != scope:
            raise InputError(
                f"{self.path} was begun as a {scope.name} study with seeds={scope.seeds}, it cannot be resumed as "
                f"{asked.name} with seeds={asked.seeds}; resume it as it was begun, or choose another folder."
            )
        now = versions()
        if now not in [header["versions"], *header["resumed_with"]]:
            self._write_header({**header, "resumed_with": [*header["resumed_with"], now]})
        return scope

    def versions(self) -> list[dict[str, str]]:
        """Every set of versions this folder's trials were run with."""
        header = self._read_header()
        return [header["versions"], *header["resumed_with"]]

    def append(self, done: Finished) -> None:
        """Write down a finished trial; once this returns it stays finished."""
        values = {name: _plain(value) for name, value in done.values.items()}
        line = {"key": done.key, "seconds": round(done.seconds, 4), "values": values}
        if done.skipped:
            line["skipped"] = done.skipped
        with self._lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def finished(self) -> dict[str, Finished]:
        """The trials written down so far, the newest line of each; half a last line is cut off."""
        if not self._lines.exists():
            return {}
        data = self._lines.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self._lines, len(whole))
        return {one.key: one for one in map(self._parsed, whole.decode().splitlines())}

    def _parsed(self, line: str) -> Finished:
        try:
            found = json.loads(line)
            values = {name: math.nan if value is None else value for name, value in found["values"].items()}
            return Finished(found["key"], values, found.get("skipped", ""), found["seconds"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{self._lines} is damaged: {line[:60]!r} is no finished trial.") from None

    def _read_header(self) -> dict[str, Any]:
        try:
            header: dict[str, Any] = json.loads(self._header.read_text(encoding="utf-8"))
            schema = header["schema"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self._header} is damaged; choose another folder.") from None
        if schema != STUDY_SCHEMA:
            raise InputError(
                f"{self._header} has schema {schema!r}, this version of coterie reads {STUDY_SCHEMA}; "
                "use the version that wrote it, or choose another folder."
            )
        return header

    def _write_header(self, header: Mapping[str, Any]) -> None:
        new = self.path / "study.json.new"
        new.write_text(json.dumps(header, indent=2) + "\n", encoding="utf-8")
        new.replace(self._header)


def _plain(value: float) -> float | int | None:
    """A number as JSON has it; what is undefined is null."""
    if isinstance(value, int):
        return value
    return None if math.isnan(value) else float(value)
