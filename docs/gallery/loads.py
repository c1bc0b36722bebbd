# %% [markdown]
# # Load shapes of eleven utilities
# 43,800 days of hourly electricity load in eleven zones of PJM Interconnection (CC0). Each utility divides a day by
# its mean, so that its shape is left, and keeps it. Together they find eight shapes of days.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import coterie

stored = np.load(Path(os.environ["COTERIE_DATA"]) / "pjm_load.npz")
zones = [str(name) for name in stored["site_names"]]
days = stored["X"] / stored["X"].mean(axis=1, keepdims=True)
tables = {zone: days[stored["site"] == at] for at, zone in enumerate(zones)}
print(f"{len(days):,} days at {len(tables)} utilities")

# %% [markdown]
# Everything that leaves a utility is a sum over all of them, of groups of at least five days.

# %%
model = coterie.fit(coterie.FederatedKMeans(8, random_state=0), tables)
sent, rows = model.ledger_.total("bytes_up"), stored["X"].nbytes
print(f"{model.ledger_.total('rounds')} rounds, {sent:,} bytes from all utilities; the days are {rows:,} bytes")

# %%
shapes, shares = model.cluster_centers_, model.counts_ / model.counts_.sum()
order = np.argsort(shapes.argmax(axis=1) + shapes.max(axis=1))
figure, panels = plt.subplots(2, 4, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
for panel, cluster in zip(panels.flat, order, strict=True):
    panel.axhline(1, c="#bbbbbb", lw=0.8)
    panel.plot(shapes[cluster], c="C0", lw=2)
    panel.set_title(f"{shares[cluster]:.0%} of days", fontsize=9)
    panel.set_xticks([0, 6, 12, 18])
panels[1, 0].set_xlabel("hour")
panels[0, 0].set_ylabel("load / mean of the day")
plt.show()

# %% [markdown]
# Winter days peak in the morning and the evening, summer days in the afternoon. Each utility labels its own days with
# the model. Here one machine plays all of them, and sees which have which days:

# %%
counts = np.array([np.bincount(model.labels_by_site_[zone], minlength=8) for zone in zones])
figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
shown = (counts / counts.sum(axis=1, keepdims=True))[:, order]
shades = axes.imshow(shown, cmap="Blues", vmin=0, aspect="auto")
axes.set_yticks(range(len(zones)), zones)
axes.set_xticks(range(8), [f"peak at {shapes[cluster].argmax()} h" for cluster in order], rotation=20)
figure.colorbar(shades, label="share of the utility's days")
plt.show()
