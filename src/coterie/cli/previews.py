"""What a site would send, and what the server would see of it: ``site preview``, and the part of ``site show``."""

from __future__ import annotations

import base64
import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from coterie.cli import options as opt
from coterie.cli.budgets import taken_facts, taken_sentence
from coterie.cli.jobs import Job
from coterie.cli.options import site
from coterie.cli.terminal import print_json, say, show_table
from coterie.errors import RowsHidden
from coterie.maths.accounting import LARGEST_EPSILON
from coterie.messages import codec
from coterie.messages.chain import read_chain
from coterie.messages.refusals import Refusal
from coterie.messages.schema import message_fields, reply_type, request_type
from coterie.messages.site_api import CARRIERS, Table
from coterie.methods.registry import METHODS
from coterie.methods.shared.choosing import NoneSupported
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.privacy import Privacy
from coterie.sites.policy import EVERYTHING, Policy

HEADS = {
    "asked": "question",
    "answer": "answer",
    "content": "content",
    "times": "times",
    "numbers": "values",
    "bytes": "bytes",
    "example": "example",
    "seen": "the server sees",
}
TOTALS = (
    "Values and bytes are totals over all answers of a kind, in a run with this site alone. In a real run the kinds "
    "are the same; rounds and sizes depend on the other sites. Nothing was sent."
)


class _Played(Policy):
    """The rules of a site, but what they refuse is played: a preview says it instead."""

    def objection(self, *_: Any, **__: Any) -> Refusal | None:
        """None: everything is answered."""
        return None


@site.command()
@opt.reads_tables
def preview(
    data: opt.OwnFile,
    clusters: opt.Clusters,
    method: opt.Method = "federated-kmeans",
    settings: opt.Settings = None,
    scale: opt.Scale = "none",
    missing: opt.Missing = "refuse",
    ranges: opt.Ranges = None,
    epsilon: opt.Epsilon = None,
    delta: opt.Delta = None,
    tolerated: opt.Tolerated = None,
    unit: opt.Unit = None,
    rows_per_unit: opt.RowsPerUnit = None,
    policy: Annotated[
        str, typer.Option(help="The site's policy: a file, private, strict, standard or research.")
    ] = "standard",
    as_json: opt.AsJson = False,
    **reading: Any,
) -> None:
    """Show what this site would send under its policy: run the method here, with this site alone.

    Nothing leaves this machine. In a real run the kinds of answers are the same. The questions, the number of rounds
    and this site's share of a sample depend on the other sites.
    """
    from coterie.estimators.checks import check_private
    from coterie.sites.policy_files import find_policy

    job = Job(
        [str(data)],
        "",
        opt.clusters_of(clusters),
        method,
        scale=scale,
        missing=missing,
        ranges=opt.ranges_of(ranges),
        privacy=opt.privacy_of(
            epsilon=epsilon, delta=delta, tolerated=tolerated, unit=unit, rows_per_unit=rows_per_unit
        ),
        policy=policy,
        settings=opt.settings_of(settings),
        **reading,
    )
    estimator = job.estimator()
    job.check_key(estimator)
    tables = {name: table for name, (table, _) in job.scanned_tables().items()}
    names = [column.name for column in next(iter(tables.values())).columns]
    profile = job.profiles_by is not False
    options = PreparationOptions(job.scale, job.missing, job.ranges_of(names), profile=profile)  # type: ignore[arg-type]
    rules = find_policy(policy)
    check_private(estimator, {data.name: rules})
    budget, answers = taken_facts(Privacy.of(estimator.privacy), rules), played(estimator, tables, options, rules)
    if as_json:
        print_json(answers if budget is None else {"answers": answers, "budget": budget})
        return
    show_answers(f"What {data.name} would send", answers)
    if budget is not None:
        say(taken_sentence(budget, is_fresh=True))


def show_answers(title: str, answers: list[dict[str, Any]]) -> None:
    """Print what was played."""
    show_table(title, [*HEADS.values()], answer_rows(answers, [*HEADS]))
    say(TOTALS)
    for sentence in refused_sentences(answers):
        say(sentence)


def answer_rows(answers: list[dict[str, Any]], names: Sequence[str]) -> list[list[str]]:
    """What was played as rows of a table, with the columns named in ``HEADS``."""
    asked = ({**answer, "asked": answer["asked"].rpartition(".")[2]} for answer in answers)
    return [[f"{value:,}" if isinstance(value := answer[name], int) else value for name in names] for answer in asked]


def refused_sentences(answers: list[dict[str, Any]]) -> list[str]:
    """Why there would be no answer of some kinds."""
    return [
        f"Where it says refused: {sentence}. A run that needs such an answer stops."
        for sentence in dict.fromkeys(answer["refused"] for answer in answers if answer["refused"])
    ]


def played(
    estimator: Any,
    tables: Mapping[str, Table],
    options: PreparationOptions,
    rules: Policy,
    columns: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Every kind of answer of the only site: its size, its first values, and what the server would see of it."""
    from sklearn.base import clone

    method, privacy = estimator.method, Privacy.of(estimator.privacy)
    if privacy is None:
        lines = _answers(estimator, tables, options, rules, columns)
    else:  # there is one site, and all of its noise is needed; if it hides the few rows, there is less of it
        alone = clone(estimator).set_params(privacy=replace(privacy, tolerated=0))
        quiet = clone(estimator).set_params(privacy=replace(privacy, tolerated=0, epsilon=LARGEST_EPSILON))
        try:
            lines = _answers(alone, tables, options, rules, columns)
        except RowsHidden:
            lines = _answers(quiet, tables, options, rules, columns)
    groups = [list(group) for _, group in groupby(lines, lambda line: (line["asked"], line["answer"]))]
    return [
        {
            **{name: group[0][name] for name in ("asked", "answer", "content")},
            "times": len(group),
            "numbers": sum(line["floats"] for line in group),
            "bytes": sum(line["bytes"] for line in group),
            "example": _example(group[0]),
            **_seen(group[0], method, rules),
        }
        for group in groups
    ]


def _answers(
    estimator: Any,
    tables: Mapping[str, Table],
    options: PreparationOptions,
    rules: Policy,
    columns: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """The answers of the only site in a run, from its ledger."""
    from coterie.estimators.fitting import fit

    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(NoneSupported):  # by this site's rows: the run ends here
            fit(
                estimator,
                tables,
                journal=Path(folder) / "journal",
                policy=_played_rules(rules, estimator),
                sums="plain",
                scale=options.scale,
                missing=options.missing,
                ranges=options.ranges,
                columns=columns,
                profile=[column.name for column in options.besides] or options.profile,
            )
        (ledger,) = (Path(folder) / "journal" / "sites").glob("*.jsonl")
        return [line for line in read_chain(ledger) if line["event"] == "answer"]


def _played_rules(rules: Policy, estimator: Any) -> Policy:
    """The rules under which everything is answered, decided as if by the site's own; noise protects nobody here."""
    method, is_open = estimator.method, METHODS[estimator.method].needs_rows or estimator.privacy is not None
    open_rules = replace(
        rules,
        methods=None,
        protection="none" if is_open else rules.protection_of(method),
        method_protection={},
        per_site_results="rows" if estimator.sends_rows else rules.per_site_results,
        verification="off",
        min_roster=1,
        rosters="any",
        peers=None,
        max_questions=None,
        max_runs=None,
        min_rows=0,
        alignment_key=rules.alignment_key or bytes(32),
        orders_may_choose=EVERYTHING,
    )
    return _Played(**{item.name: getattr(open_rules, item.name) for item in fields(Policy)})


def _seen(line: Mapping[str, Any], method: str, rules: Policy) -> dict[str, str]:
    """What the server would see of an answer under the site's rules, or why there would be none."""
    kind, is_summed = request_type(line["asked"]), line["seen"] != "single"
    refused = None
    if kind is not None and kind not in CARRIERS:
        refused = rules.objection(method, kind, is_masked=is_summed)
    if refused is not None:
        return {"seen": "refused", "refused": refused.sentence}
    if not line["floats"]:
        return {"seen": "the answer", "refused": ""}
    return {"seen": f"a sum over {rules.min_roster} sites or more" if is_summed else "the answer", "refused": ""}


def _example(line: Mapping[str, Any]) -> str:
    """The first values of an answer if they are float64, else its size."""
    payload = codec.payload_of(base64.b64decode(line["frame"]))
    kind = request_type(line["asked"])
    are_floats = kind and all(
        item.array and item.array.dtype == "float64" for item in message_fields(reply_type(kind))
    )
    if not payload or not are_floats or len(payload) != 8 * line["floats"]:
        return f"{len(payload)} bytes" if payload else "nothing"
    numbers = np.frombuffer(payload, "<f8")
    return ", ".join(f"{value:.4g}" for value in numbers[:4]) + (", ..." if len(numbers) > 4 else "")
