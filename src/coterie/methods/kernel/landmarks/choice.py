"""Numbers of clusters of the rows' features by landmarks: shown without a recommendation.

Silhouette, gap and stability of kernel clusters depend on the kernel's gamma, and did not agree with the true number
in trials.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from coterie.messages.verbs import Protocol
from coterie.methods.kernel.landmarks.protocol import LandmarkParameters, embed_by_landmarks
from coterie.methods.method import COUNT_OR_NONE, ChoiceSettings, RunContext
from coterie.methods.shared.choosing import Choice, choose_k
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.preparation import spread
from coterie.parameters import parameter


@dataclass(eq=False, repr=False)
class LandmarkChoiceSettings(ChoiceSettings, LandmarkParameters):
    """The leading components of the rows' features, and how clusters of each number separate in them."""

    _: KW_ONLY
    n_components: int | None = parameter(
        None, "Components the clusters are found in; None is ``max_clusters``.", COUNT_OR_NONE
    )

    def protocol(self, context: RunContext) -> Protocol[Choice]:
        """Landmarks, an embedding, its columns' spread; then candidates as for rows."""
        n_components = self.max_clusters if self.n_components is None else self.n_components
        fit = yield from embed_by_landmarks(self, n_components, context, center=False, announce=True)
        columns = yield from spread(len(fit.values))
        check_rows(columns.rows, self.max_clusters)
        return (yield from choose_k(self.ks, columns, seed=context.seed, judged=False))
