"""The one list of methods: for the command line, for policies, for audits and for studies."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from coterie.errors import InputError
from coterie.messages.schema import Request
from coterie.methods.analysis import choose_k, compare, describe
from coterie.methods.edge import method as edge_method
from coterie.methods.edge import pca
from coterie.methods.kernel import baselines, ce_pca
from coterie.methods.kernel.dspgd import method as dspgd
from coterie.methods.kernel.landmarks import method as landmarks
from coterie.methods.kmeans import federated, lloyd, one_shot
from coterie.methods.method import PREPARATION, Method
from coterie.methods.vertical import method as vertical_method

METHODS: dict[str, Method] = {}


def register(method: Method) -> None:
    """Add a method to the list; its name must be free."""
    if METHODS.setdefault(method.name, method) is not method:
        raise ValueError(f"there are two methods called {method.name!r}")


for _method in (
    federated.METHOD,
    lloyd.METHOD,
    one_shot.METHOD,
    landmarks.METHOD,
    pca.METHOD,
    dspgd.METHOD,
    *edge_method.METHODS,
    vertical_method.METHOD,
    dspgd.DENSE,
    baselines.RFK,
    baselines.CK,
    baselines.SK,
    ce_pca.METHOD,
    vertical_method.DPCA,
    choose_k.METHOD,
    describe.METHOD,
    compare.METHOD,
):
    register(_method)
for _point in entry_points(group="coterie.methods"):  # of other packages that are installed
    register(_point.load())


def belongs(request: type[Request[Any]], method: str) -> bool:
    """Whether ``method`` may ask this at all; a server cannot dress one method's question as another's."""
    known = METHODS.get(method)
    return known is not None and (request in known.requests or request in PREPARATION)


def check_can_be_private(name: str) -> None:
    """Raise what to use instead of a method that cannot be run with differential privacy."""
    if not METHODS[name].can_be_private:
        *most, last = [method.name for method in METHODS.values() if method.can_be_private]
        raise InputError(
            f"{name} cannot be run privately; use {' or '.join([', '.join(most), last] if most else [last])}."
        )
