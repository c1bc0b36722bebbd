"""What sites' policies would refuse, raised before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.maths.accounting import epsilon_of
from coterie.messages.site_api import Table, keys_of
from coterie.methods.registry import METHODS, check_can_be_private
from coterie.methods.shared.alignment import listed
from coterie.methods.shared.privacy import Privacy, Releases, unit_words
from coterie.sites.policy import Policy
from coterie.sites.views.units import taken
from coterie.text import count_of


def check_rules(
    estimator: FederatedEstimator, tables: Mapping[str, Table], rules: Mapping[str, Policy], *, is_masked: bool
) -> None:
    """Raise, before anything is sent, whatever a site's policy would refuse."""
    if estimator.sends_rows:
        check_rows_allowed(estimator, rules)
    check_private(estimator, rules)
    privacy = Privacy.of(estimator.privacy)
    if privacy is None:
        check_groups(tables, rules, estimator.method)
    else:
        Releases(privacy, len(tables))
    if estimator.splits_columns:  # no sums are asked for
        check_alignment(tables, rules)
    elif is_masked:
        check_roster(rules)


def check_rows_allowed(estimator: FederatedEstimator, rules: Mapping[str, Policy]) -> None:
    """Raise, before anything is sent, if a site would refuse questions for rows."""
    method = estimator.method
    against = [name for name, policy in rules.items() if policy.per_site_results != "rows"]
    if against:
        raise InputError(
            f"{method} sends rows, projected or not, which the policy of {listed(against)} does not allow. Set "
            'per_site_results = "rows" there, or choose a method that sends only sums or averages (coterie methods '
            "lists them)."
        )
    protected = [name for name, policy in rules.items() if policy.protection_of(method) != "none"]
    if METHODS[method].needs_rows and protected:
        raise InputError(
            f"{method} needs single rows, which the policy of {listed(protected)} protects by groups. Exempt the "
            f'method there with protection = "none" under [method.{method}], or choose a method that works with '
            "groups (coterie methods lists them)."
        )


def check_private(estimator: FederatedEstimator, rules: Mapping[str, Policy]) -> None:
    """Raise, before anything is sent, if a site would refuse the order for its privacy, or for want of it."""
    method, privacy = estimator.method, Privacy.of(estimator.privacy)
    asked = {name: policy for name, policy in rules.items() if policy.protection_of(method) != "none"}
    if privacy is None:
        noisy = [name for name, policy in asked.items() if policy.protection_of(method) == "noise"]
        if noisy:
            check_can_be_private(method)
            raise InputError(
                f"the policy of {listed(noisy)} answers only differentially private orders; give the run privacy: an "
                "epsilon, and the ranges of all columns."
            )
        return
    without = [name for name, policy in asked.items() if policy.privacy is None]
    if without:
        raise InputError(
            f"the policy of {listed(without)} has no budget for differentially private orders; add a section "
            "[privacy] with epsilon = 4.0, say, or use the policy 'private'."
        )
    for name, policy in asked.items():  # what earlier runs took, only the sites know
        budget = policy.privacy
        if budget is not None and not budget.affords(taken(privacy, budget)):
            takes = epsilon_of(taken(privacy, budget) ** 0.5, budget.delta)
            raise InputError(
                f"the run takes epsilon={takes:.3g} of the budget of {name}, which is epsilon={budget.epsilon:g} at "
                f"delta={budget.delta:g} for {unit_words(budget.unit, budget.rows_per_unit)}; use less."
            )


def check_groups(tables: Mapping[str, Table], rules: Mapping[str, Policy], method: str) -> None:
    """Raise, before anything is sent, if a site holds fewer rows than a group."""
    few = [
        f"{name} holds {count_of(table.n_rows, 'row')}"
        for name, table in tables.items()
        if rules[name].protection_of(method) == "groups" and table.n_rows < rules[name].min_group
    ]
    if few:
        least = max(policy.min_group for policy in rules.values())
        raise InputError(
            f"{', '.join(few)}; the policy shows only groups of at least {least} rows (min_group). Leave such sites "
            "out; if one owner holds all tables, use the policy 'simulation'."
        )


def check_alignment(tables: Mapping[str, Table], rules: Mapping[str, Policy]) -> None:
    """Raise, before anything is sent, if a site could not tag the keys of its rows."""
    without = [name for name, table in tables.items() if keys_of(table) and rules[name].alignment_key is None]
    if without:
        raise InputError(
            f"rows are matched by key, but the policy of {without[0]} has no alignment_key, the secret that all "
            "sites share. `coterie policy secret` prints one. If one owner holds all tables, use the policy "
            "'simulation'."
        )


def check_roster(rules: Mapping[str, Policy]) -> None:
    """Raise, before anything is sent, if there are too few sites for a sum."""
    smallest = max(policy.min_roster for policy in rules.values())
    if len(rules) < smallest:
        raise InputError(
            f"there are {len(rules)} sites, but their policy allows no sum over fewer than {smallest} (min_roster). "
            "If one owner holds all tables, use sums='plain' and policy=Policy.simulation()."
        )
