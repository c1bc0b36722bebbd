"""A plan as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coterie.cli.terminal import say, show_table, tell
from coterie.text import count_of

if TYPE_CHECKING:
    from coterie.planning.amounts import Amount
    from coterie.planning.budgets import BudgetUse
    from coterie.planning.plans import MethodPlan, Plan, Recommendation
    from coterie.planning.speeds import Estimates

_SEEN = {
    "masked": "only the sum over sites",
    "summed": "each site's answer; it sums them up",
    "single": "each site's answer",
}
_MANY_SITES = 8


def show_plan(plan: Plan) -> None:
    """Print a plan for people."""
    rows, columns = plan.rows.values(), set(plan.columns.values())
    width = f"{columns.pop()} columns" if len(columns) == 1 else f"{sum(plan.columns.values())} columns in all"
    tell(f"Plan for {count_of(len(rows), 'site')}, {sum(rows):,} rows, {width}. Nothing was sent.")
    if len(plan.methods) == 1:
        show_table(f"{plan.methods[0].method}, all sites together", *_whole(plan.methods[0]))
    else:
        show_table("Bytes of all sites together", *_bytes(plan.methods))
        show_table("Rounds, and seconds by engine", *_rounds(plan.methods))
    _explain(plan)
    shown = [method.method for method in plan.methods if method.shows_sites]
    if len(plan.methods) > 1 and shown:
        say(f"With {', '.join(shown)} the server sees answers of single sites; otherwise it sees only sums.")
    for refused in plan.not_planned:
        say(f"{refused.method} cannot be run so: {refused.why}")
    if len(plan.methods) == 1:
        _show_method(plan.methods[0])
    if len(plan.methods) + len(plan.not_planned) > 1 and plan.recommendation is not None:
        say(_advice(plan.recommendation))


Lines = tuple[list[str], list[list[str]]]


def _whole(plan: MethodPlan) -> Lines:
    """What a run takes, one amount a line."""
    lines = [
        [name, f"{amount.least:,}", f"{amount.estimate:,}", _most(amount)]
        for name, amount in (
            ("bytes from sites", plan.bytes_up),
            ("bytes to sites", plan.bytes_down),
            ("values from sites", plan.values_up),
            ("rounds", plan.rounds),
            ("rounds, with those for masks", plan.exchanges),
            ("bytes of the largest message", plan.largest_message),
        )
    ]
    for engine, times in plan.estimates.items():
        most = "?" if times.seconds_most is None else _about(times.seconds_most)
        lines.append([f"seconds, {engine}", _about(times.seconds_least), _about(times.seconds), most])
    return ["", "at least", "about", "at most"], lines


def _bytes(plans: tuple[MethodPlan, ...]) -> Lines:
    """What runs of several methods send, one a line."""
    lines = [
        [
            plan.method,
            *(text for way in (plan.bytes_up, plan.bytes_down) for text in (f"{way.estimate:,}", _most(way))),
        ]
        for plan in plans
    ]
    return ["method", "from sites", "at most", "to sites", "at most"], lines


def _rounds(plans: tuple[MethodPlan, ...]) -> Lines:
    """How long they take, one a line."""
    engines = list(plans[0].estimates)
    lines = [
        [
            plan.method,
            *(text for amount in (plan.rounds, plan.exchanges) for text in (f"{amount.estimate:,}", _most(amount))),
            *(_about(plan.estimates[engine].seconds) for engine in engines),
        ]
        for plan in plans
    ]
    return ["method", "rounds", "at most", "with masks", "at most", *engines], lines


def _most(amount: Amount) -> str:
    return "?" if amount.most is None else f"{amount.most:,}"


def _explain(plan: Plan) -> None:
    """What the numbers are."""
    say(f"Sending the rows would take {plan.bytes_of_rows:,} bytes (8 a value).")
    if any(not method.is_exact for method in plan.methods):
        say(
            "Rows decide some of these numbers. `At least` and `at most` hold for any rows; `about` is an estimate, "
            "from made-up rows. Equal numbers are exact. All are of a run in which no site drops out."
        )
    else:
        say("All numbers of bytes and rounds are exact if no site drops out.")
    say(f"Seconds are estimates, for a machine such as {plan.machine}.")


def _show_method(plan: MethodPlan) -> None:
    """What there is to say of one method."""
    if len(plan.sites) <= _MANY_SITES:
        heads = ["site", "bytes up", "at most", "bytes down", "at most", "questions", "at most"]
        rows = [
            [name, *(text for own in vars(site).values() for text in (f"{own.estimate:,}", _most(own)))]
            for name, site in plan.sites.items()
        ]
        show_table("By site", heads, rows)
    seen = [[line.doing, line.content, _SEEN[line.seen]] for line in plan.seen]
    show_table("What the server would see", ["question", "made of", "the server sees"], seen)
    if plan.is_private:
        say("All of it has noise: epsilon and delta bound what anybody learns of a row, or of a unit.")
    else:
        say(f"In words: {plan.discloses}.")
    if plan.is_verified:
        say("Sites check every question against the order, and answer nothing else.")
    for engine, estimates in plan.estimates.items():
        say(_memory(engine, estimates))
    for use in _merged(plan.budgets):
        say(use)


def _memory(engine: str, times: Estimates) -> str:
    if times.memory == times.server_memory:
        return f"Memory, {engine}: about {times.memory:,.0f} MB."
    return f"Memory, {engine}: about {times.memory:,.0f} MB at a site, {times.server_memory:,.0f} MB at the server."


def _about(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1g}"


def _merged(uses: tuple[BudgetUse, ...]) -> Iterator[str]:
    """A sentence for each budget; sites with the same one have one together."""
    by_text: dict[str, list[str]] = {}
    for use in uses:
        by_text.setdefault(_budget(use), []).append(use.site)
    for text, sites in by_text.items():
        yield f"{'Every site' if len(sites) == len({use.site for use in uses}) else ', '.join(sites)}: {text}"


def _budget(use: BudgetUse) -> str:
    enough = "" if use.is_enough else " That is not enough: the run would be refused."
    if use.of == "epsilon":
        return f"epsilon={use.takes:.3g} of {use.allowed:g} at delta={use.delta:g}.{enough}"
    if use.of == "runs":
        return f"1 of the {use.allowed:,.0f} runs that its policy allows an analyst.{enough}"
    return f"at most {use.takes:,.0f} of the {use.allowed:,.0f} questions that its policy allows a run.{enough}"


def _advice(advice: Recommendation) -> str:
    reasons = []
    if advice.hides_sites:
        reasons.append("the server sees nothing of a single site")
    if advice.use:
        reasons.append(f"it is recommended {advice.use}")
    if advice.is_smallest:
        reasons.append("it is likely to send the fewest bytes")
    return f"Recommended: {advice.method}" + (f", because {', and '.join(reasons)}." if reasons else ".")
