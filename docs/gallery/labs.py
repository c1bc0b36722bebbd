# %% [markdown]
# # Columns of three laboratories
# 178 bottles of wine went to three laboratories. One measured acids and minerals, one phenols, one colour and what
# remains: every laboratory has other columns of the same bottles. A bottle's number is known to the laboratories, and
# the server sees only tags of it.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

import coterie
from coterie.sites.policy import Policy

wine = load_wine()
measured = {
    "minerals": ["alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium"],
    "phenols": ["total_phenols", "flavanoids", "nonflavanoid_phenols", "proanthocyanins"],
    "colour": ["color_intensity", "hue", "od280/od315_of_diluted_wines", "proline"],
}
bottles = pd.DataFrame(wine.data, columns=wine.feature_names)
tables = {}
for at, (laboratory, columns) in enumerate(measured.items()):
    mixed = bottles[columns].sample(frac=1, random_state=at)  # every laboratory has an order of its own
    tables[laboratory] = mixed.assign(bottle=mixed.index.map("B{:03d}".format))

# %% [markdown]
# Once, each laboratory sends the leading eigenpairs of its own kernel matrix, and the server combines them.
# These disclose how far apart bottles are in a laboratory's columns, so every laboratory must allow it: here one
# owner plays all three (`simulation`). The [method's page](../methods/vertical-kernel-pca.md) measures what
# eigenpairs give away.

# %%
model = coterie.fit(
    coterie.VerticalKernelKMeans(3, kernel="rbf", random_state=0), tables, key="bottle", scale="standard",
    policy="simulation", sums="plain",
)  # fmt: skip
print(model.ledger_.total("rounds"), "rounds,", model.ledger_.total("bytes_up"), "bytes from all laboratories")

# %%
who = {f"B{number:03d}": kind for number, kind in enumerate(wine.target)}
secret = Policy.simulation().alignment_key  # the laboratories share it; it makes a bottle's tag of its number
tagged = dict(zip(coterie.row_tags(who, secret).tolist(), who.values(), strict=True))
truth = np.array([tagged[tag] for tag in model.tags_.tolist()])
agreement = {"together": adjusted_rand_score(truth, model.labels_)}
for laboratory, table in tables.items():
    own = table.drop(columns="bottle")
    labels = KMeans(3, n_init=10, random_state=0).fit_predict((own - own.mean()) / own.std())
    agreement[laboratory + " alone"] = adjusted_rand_score([who[key] for key in table["bottle"]], labels)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
places = model.embedding_[:, :2]
for kind in range(3):
    left.scatter(*places[truth == kind].T, s=16, label=f"cultivar {kind}")
left.set(xlabel="component 1", ylabel="component 2", title="all laboratories' columns, joined by nobody")
left.legend(frameon=False, fontsize=8)
bars = right.barh(list(agreement), list(agreement.values()), color=["C0", "C7", "C7", "C7"])
right.bar_label(bars, fmt="%.2f", padding=3)
right.set(xlabel="agreement with the cultivars", xlim=(0, 1.1))
right.invert_yaxis()
plt.show()
