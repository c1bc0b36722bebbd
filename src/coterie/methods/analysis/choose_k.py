"""How many clusters there are: silhouettes, gaps and stabilities of all numbers of clusters, in one joint round."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.messages.verbs import Protocol
from coterie.methods.method import ChoiceSettings, Method, RunContext
from coterie.methods.shared.choosing import CHOOSING, Choice, choose_k
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.preparation import spread


@dataclass(eq=False, repr=False)
class ChooseKSettings(ChoiceSettings):
    """Candidates from one summary of all rows, judged on all rows."""

    method = "choose-k"

    def protocol(self, context: RunContext) -> Protocol[Choice]:
        """The columns' spread, a summary of the rows, its two halves, one round that judges."""
        self.check(context.n_columns)
        columns = context.spread or (yield from spread(context.n_columns))
        check_rows(columns.rows, self.max_clusters)
        return (yield from choose_k(self.ks, columns, seed=context.seed))


METHOD = Method(
    "choose-k",
    "Which number of clusters is supported: silhouette, gap and stability of each",
    CHOOSING,
    "with K the largest k: cells(2d+1) a round while there are fewer than 4K, 4K(d+1) twice, 16K(d+1) for halves; "
    "sum of k^2+k+2 over all k to judge",
    "sums by cell over all sites; for each k sizes, cost and silhouettes of clusters, and two halves compared",
    settings=(ChooseKSettings,),
    use="before clustering, where nobody knows how many clusters there are",
)
