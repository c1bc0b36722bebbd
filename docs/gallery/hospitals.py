# %% [markdown]
# # Four hospitals
# 920 patients with suspected heart disease, at four hospitals in two countries (UCI heart disease). The hospitals
# want to know which kinds of patients there are. They first look at what their columns hold, then at how many kinds
# the patients support, and only then cluster.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import coterie

stored = np.load(Path(os.environ["COTERIE_DATA"]) / "heart_disease.npz")
columns = [str(name) for name in stored["feature_names"]]
tables = {
    str(name): pd.DataFrame(stored["X"][stored["site"] == at], columns=columns)
    for at, name in enumerate(stored["site_names"])
}
reading = {"na": {"chol": ["0"]}}
described = coterie.describe(tables, **reading)
described.to_frame()[["present", "missing", "mean", "deviation"]].round(2)

# %% [markdown]
# A cholesterol of 0 stands for a missing value here; `na` says so. How many kinds of patients are there?

# %%
choice = coterie.choose_k(tables, range(2, 9), scale="standard", missing="mean", **reading)
print("recommended:", choice.n_clusters_, "-", choice.choice_.support)
choice.to_frame().round(3)

# %% [markdown]
# No number is supported: halves of the patients do not agree on their clusters. So these are groups to talk about,
# not kinds that nature made. A board asked for four. What distinguishes them is in the profiles, in their units.

# %%
options = {"scale": "standard", "missing": "mean", "profile": True}
model = coterie.fit(coterie.FederatedKMeans(4, random_state=0), tables, **options, **reading)
profile = model.profiles_
order = profile.order()
figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
shades = axes.imshow(profile.differences[:, order], cmap="RdBu_r", vmin=-1.6, vmax=1.6, aspect="auto")
axes.set_xticks(range(len(order)), [profile.columns[place] for place in order], rotation=45, ha="right")
axes.set_yticks(range(4), [f"{size:,.0f} patients" for size in profile.rows])
for row in range(4):
    for at, place in enumerate(order):
        strong = abs(profile.differences[row, place]) > 1
        axes.text(
            at,
            row,
            f"{profile.means[row, place]:.3g}",
            ha="center",
            va="center",
            fontsize=8,
            c="w" if strong else "k",
        )
figure.colorbar(shades, label="deviations from all patients")
plt.show()

# %% [markdown]
# Sizes count whole groups of at least five patients. The price, beside that of sending the rows (what is sent does
# not grow with the number of rows; a few hundred of them are cheap to send):

# %%
sent, rows = model.ledger_.total("bytes_up"), stored["X"].size * 8
print(f"{sent:,} bytes left the hospitals; the rows are {rows:,} bytes")
