# %% [markdown]
# # Clusters from few numbers
# Handwritten digits at five sites, 64 columns. How much must be sent for a good k-means? Summaries of a paper (random
# projections, PCA, coresets) send rows or projections of them. Each site's own centers, and sums, do not.

# %%
import matplotlib.pyplot as plt
from sklearn.cluster import KMeans

import coterie
from coterie.examples.datasets import digits

images = digits()
best = KMeans(10, n_init=20, random_state=0).fit(images.rows).inertia_
tables = images.by_site()

# %% [markdown]
# The same data, each pipeline once, with the sizes that it chooses itself. Here one owner plays all sites.

# %%
options = {"policy": "simulation", "sums": "plain"}
models = {
    "centers and steps (auto)": coterie.EdgeKMeans(10, random_state=0),
    "federated-kmeans": coterie.FederatedKMeans(10, random_state=0),
    "federated-kmeans, n_init=1": coterie.FederatedKMeans(10, n_init=1, random_state=0),
}
models |= {name: coterie.EdgeKMeans(10, pipeline=name, random_state=0) for name in ("fss", "jl+fss", "jl+bklw")}
figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
for name, model in models.items():
    coterie.fit(model, tables, **options)
    squares = ((images.rows[:, None] - model.cluster_centers_) ** 2).sum(axis=2).min(axis=1).sum()
    values = model.ledger_.total("floats_up")
    sends_rows = "fss" in name or "bklw" in name
    axes.scatter(values, squares / best, c="C1" if sends_rows else "C0", s=40)
    axes.annotate(name, (values, squares / best), xytext=(6, 4), textcoords="offset points", fontsize=8)
    print(f"{name:28} {values:>8,} values, {squares / best:.4f} times the best cost")
axes.axvline(images.rows.size, c="#999999", ls="--", lw=1)
axes.annotate("all rows", (images.rows.size, axes.get_ylim()[1]), rotation=90, va="top", ha="right", fontsize=8)
axes.set(xscale="log", xlabel="values sent by all sites", ylabel="cost / best pooled cost")
plt.show()

# %% [markdown]
# Orange ones send rows or projections of rows; blue ones send averages or sums.
