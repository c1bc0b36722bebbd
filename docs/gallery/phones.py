# %% [markdown]
# # Activity of 36 phones
# 36 people carried a phone while they walked, jogged, climbed stairs, sat and stood (WISDM v1.1; Kwapisz, Weiss &
# Moore 2010). Each phone keeps its windows of accelerometer features, 43 columns. Half of the people show only some
# of the activities, so no phone can find all kinds alone.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

import coterie

stored = np.load(Path(os.environ["COTERIE_DATA"]) / "wisdm.npz")
people, columns = np.unique(stored["client"]), [str(name) for name in stored["feature_names"]]
tables = {
    f"phone-{person}": pd.DataFrame(stored["X"][stored["client"] == person], columns=columns) for person in people
}
print(f"{len(stored['X']):,} windows on {len(tables)} phones, {min(map(len, tables.values()))} or more on each")

# %% [markdown]
# Every sum is masked among the 36 phones, and every phone shows groups of at least five windows.

# %%
model = coterie.fit(
    coterie.FederatedKMeans(6, random_state=0), tables, scale="standard", missing="mean", profile=True
)
profile = model.profiles_
order = profile.order()[:16]
figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
shades = axes.imshow(profile.differences[:, order], cmap="RdBu_r", vmin=-2, vmax=2, aspect="auto")
axes.set_xticks(range(len(order)), [profile.columns[place] for place in order], rotation=45, ha="right")
axes.set_yticks(range(6), [f"{size:,.0f} windows" for size in profile.rows])
figure.colorbar(shades, label="deviations from all windows")
plt.show()

# %% [markdown]
# The 16 columns (of 43) that distinguish the clusters most. What people did is known here, and was not used:

# %%
names = [str(name) for name in stored["class_names"]]
labels = model.predict(pd.DataFrame(stored["X"], columns=columns))
shares = np.array([np.bincount(labels[stored["y"] == at], minlength=6) for at in range(6)], float)
print("agreement with the activities (adjusted Rand index):", round(adjusted_rand_score(stored["y"], labels), 2))
shares /= shares.sum(axis=1, keepdims=True)
figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
left = np.zeros(6)
for cluster in range(6):
    axes.barh(names, shares[:, cluster], left=left, label=f"cluster {cluster}")
    left += shares[:, cluster]
axes.set_xlabel("share of the activity's windows")
axes.legend(ncols=6, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.18), frameon=False)
plt.show()

# %% [markdown]
# With so many small sites masks are most of what is sent; the bytes are those of a phone:

# %%
sent = [model.ledger_.total("bytes_up", site=name) for name in tables]
rows = stored["X"].size * 8 // len(tables)
print(f"{min(sent):,} to {max(sent):,} bytes from a phone, whose rows are {rows:,} bytes on average")
