"""A run played with one site, to see what it would send."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from coterie.cli.jobs import Job
from coterie.messages import codec
from coterie.messages.chain import read_chain
from coterie.messages.schema import message_fields, reply_type, request_type


def played(job: Job) -> list[dict[str, Any]]:
    """Every kind of answer the job's one site gives, with its size and an example of its numbers."""
    from coterie.estimators.fitting import fit
    from coterie.protocols.methods import METHODS
    from coterie.sites.policy import Policy, Protection

    estimator = job.estimator()
    job.check_key(estimator)
    shown: Protection = "none" if METHODS[estimator.method_name].needs_rows else "groups"
    with tempfile.TemporaryDirectory() as folder:
        fit(
            estimator,
            job.tables(),
            journal=Path(folder) / "journal",
            policy=replace(Policy.simulation(), protection=shown),
            sums="plain",
            scale=job.scale,  # type: ignore[arg-type]
            missing=job.missing,  # type: ignore[arg-type]
        )
        (book,) = (Path(folder) / "journal" / "sites").glob("*.jsonl")
        lines = [line for line in read_chain(book) if line["event"] == "answer"]
    found = []
    for (asked, answer), group in groupby(lines, lambda line: (line["asked"], line["answer"])):
        same = list(group)
        first = same[0]
        found.append(
            {
                "asked": asked,
                "answer": answer,
                "content": first["content"],
                "times": len(same),
                "numbers": sum(line["floats"] for line in same),
                "bytes": sum(line["bytes"] for line in same),
                "example": _example(first),
            }
        )
    return found


def _example(line: Mapping[str, Any]) -> str:
    """The first few numbers of an answer, read as float64 where that is what they are."""
    frame = base64.b64decode(line["frame"])
    start = codec.read_envelope(frame)[2] + 4
    payload = frame[start:-4]
    kind = request_type(line["asked"])
    are_floats = kind and all(
        item.array and item.array.dtype == "float64" for item in message_fields(reply_type(kind))
    )
    if not payload or not are_floats or len(payload) != 8 * line["floats"]:
        return f"{len(payload)} bytes" if payload else "nothing"
    numbers = np.frombuffer(payload, "<f8")
    return ", ".join(f"{value:.4g}" for value in numbers[:4]) + (", ..." if len(numbers) > 4 else "")
