"""How many clusters there are: silhouettes, gaps and stabilities of all numbers of clusters, in one joint round."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.messages.verbs import Protocol
from coterie.methods.method import ChoiceSettings, Method, PrivateSettings, RunContext
from coterie.methods.shared.choosing import CHOOSING, Choice, choose_k
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.preparation import spread
from coterie.methods.shared.private_choosing import CHOOSING_PRIVATELY, private_choice
from coterie.methods.shared.private_subspace import Box
from coterie.methods.shared.private_sums import PRIVATE


@dataclass(eq=False, repr=False)
class ChooseKSettings(PrivateSettings, ChoiceSettings):
    """Candidates from one summary of all rows, judged on all rows."""

    method = "choose-k"
    used_privately = ("min_clusters", "max_clusters")

    def protocol(self, context: RunContext) -> Protocol[Choice]:
        """The columns' spread, a summary of the rows, its two halves, one round that judges; or noisy sums."""
        self.check(context.n_columns)
        if context.releases is not None and context.preparation is not None:
            return (yield from private_choice(self.ks, Box(*context.preparation.box), context.releases, context.seed))
        columns = context.spread or (yield from spread(context.n_columns))
        check_rows(columns.rows, self.max_clusters)
        return (yield from choose_k(self.ks, columns, seed=context.seed))


METHOD = Method(
    "choose-k",
    "Which number of clusters is supported: silhouette, gap and stability of each",
    (*CHOOSING, *PRIVATE, *CHOOSING_PRIVATELY),
    "with K the largest k: cells(2d+1) a round while there are fewer than 4K, 4K(d+1) twice, 16K(d+1) for halves; "
    "sum of k^2+k+2 over all k to judge",
    "sums by cell over all sites; for each k sizes, cost and silhouettes of clusters, and two halves compared",
    settings=(ChooseKSettings,),
    use="before clustering, where nobody knows how many clusters there are",
)
