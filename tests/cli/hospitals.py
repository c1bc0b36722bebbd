"""Three installed sites with kits, and an analyst, for tests of what data officers see."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from coterie import FederatedKMeans, Privacy
from coterie.engines.inprocess import InProcess
from coterie.estimators.fitting import fit_over
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.preparation import PreparationOptions
from coterie.sites.approvals import Decision
from coterie.sites.identity_files import IdentityFiles
from coterie.sites.installed import InstalledSite
from tests.federations import blobs

NAMES = ("north", "south", "west")
ANALYST = "ana@university.example"
POLICY = 'protection = "noise"\napproval = "{approval}"\n[privacy]\nepsilon = 4\n'
OPTIONS = PreparationOptions(ranges=([-30.0, -30.0], [30.0, 30.0]))


class Hospitals:
    """Three installed sites with kits, and an analyst, in this process."""

    def __init__(self, folder, cli):
        assert cli("provision", "--sites", ",".join(NAMES), "--analyst", ANALYST, "--out", "kits")[0] == 0
        self.folder, self.cli = folder, cli
        self.kits = {name: InstalledSite(folder / "kits" / "sites" / name) for name in NAMES}
        self.analyst = IdentityFiles(folder / "kits" / "analysts" / ANALYST).read("analyst", ANALYST)
        for name, part in zip(NAMES, np.array_split(blobs(3000, 2, 2, seed=3), 3), strict=True):
            np.savetxt(f"{name}.csv", part, delimiter=",", header="a,b", comments="")
        self.hold(POLICY.format(approval="automatic"))

    def order(self, estimator):
        """An order of the analyst, over the columns of all sites."""
        columns = self.kits["north"].holdings().table().columns
        return SignedOrder.by(self.analyst, Order.of(estimator, columns, OPTIONS))

    def wait(self, estimator):
        """An order that waits at the first site: its run."""
        order = self.order(estimator)
        assert self.kits["north"].approvals.decision(order, order.read(), "always") is Decision.WAITING
        return order.read().run

    def hold(self, policy, *words):
        """Let all sites have this policy; what their starting says of it."""
        Path("site.toml").write_text(policy)
        given = ("--policy", "site.toml", "--check", *words)
        return [self.cli("site", "start", "--kit", f"kits/sites/{n}", "--data", f"{n}.csv", *given) for n in NAMES]

    def run(self, epsilon=1.0, order=None, **parameters):
        """One run, for which every site is started."""
        sites = []
        try:
            sites += [kit.open(name) for name, kit in self.kits.items()]
            with InProcess(sites, analyst=self.analyst) as channel:
                privacy = None if epsilon is None else Privacy(epsilon)
                estimator = FederatedKMeans(2, privacy=privacy, **parameters)
                columns = {"north": sites[0]._tables[sites[0].policy.protection].columns}
                return fit_over(channel, estimator, columns, OPTIONS, order=order or self.analyst)
        finally:
            for kit in self.kits.values():
                kit.close()

    def budget(self):
        return json.loads(self.cli("site", "budget", "--kit", "kits/sites/north", "--json")[1])
