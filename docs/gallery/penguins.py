# %% [markdown]
# # Penguins of three islands
# Three islands measured their birds. Together they can tell three kinds apart; an island that has one kind only
# splits it. No bird's measurements leave its island.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

import coterie
from coterie.examples.datasets import penguins

birds = penguins()
tables = {island: pd.DataFrame(rows, columns=birds.columns) for island, rows in birds.by_site().items()}
for island, table in tables.items():
    print(f"{island}: {len(table)} birds")

# %% [markdown]
# Each island keeps the default policy: sums are masked over all three, and nothing that leaves is about fewer than
# five birds. `profile=True` also asks what is in each cluster.

# %%
model = coterie.fit(
    coterie.FederatedKMeans(3, random_state=0), tables, scale="standard", missing="drop", profile=True
)
print("cost", model.cost_is_, round(model.inertia_, 1), "- sizes", model.counts_.astype(int), "in whole groups")
print(model.ledger_.total("bytes_up"), "bytes left the islands in", model.ledger_.total("rounds"), "rounds")
model.profiles_.to_frame().pivot(index="column", columns="cluster", values="mean").round(1)

# %% [markdown]
# What each island finds on its own is drawn below. Species are not used by anyone; they show who is right.

# %%
whole = birds.complete()
together = model.predict(pd.DataFrame(whole.rows, columns=birds.columns))
alone = np.empty(len(whole.rows), int)
for island in tables:
    own = whole.site == island
    scaled = (whole.rows[own] - whole.rows[own].mean(axis=0)) / whole.rows[own].std(axis=0)
    alone[own] = KMeans(3, n_init=10, random_state=0).fit_predict(scaled)

figure, panels = plt.subplots(2, 3, figsize=(9, 5.4), sharex=True, sharey=True, layout="constrained")
for panel, island in zip(panels.T, tables, strict=True):
    own = whole.site == island
    for axes, labels, how in zip(panel, (together, alone), ("together", "alone"), strict=True):
        axes.scatter(*whole.rows[~own, :2].T, s=6, c="#dddddd")
        axes.scatter(*whole.rows[own, :2].T, s=12, c=[f"C{label}" for label in labels[own]])
        agreement = adjusted_rand_score(whole.truth[own], labels[own])
        axes.set_title(f"{island}, {how}: agreement {agreement:.2f}", fontsize=9)
panels[1, 1].set_xlabel("bill length, mm")
panels[0, 0].set_ylabel("bill depth, mm")
plt.show()
