# %% [markdown]
# # What privacy costs
# Differential privacy adds noise to what all sites send together. How much it costs depends on two things: epsilon,
# and how many rows there are. Here are simulated patients of five hospitals, three kinds of them, in tables of three
# sizes.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans

import coterie
from coterie.errors import NoiseWarning, RowsHidden
from coterie.sites.policy import Policy, PrivacyRules

kinds, spread = np.array([[35.0, 115, 22], [55, 140, 30], [75, 160, 25]]), np.array([6.0, 8, 2])
low, high = [0, 60, 10], [120, 220, 60]  # plausible ranges, stated before anyone looks

POLICY = Policy(protection="noise", privacy=PrivacyRules(epsilon=100.0))  # a budget that lets everything here run

warnings.simplefilter("ignore", NoiseWarning)  # the costs below show how large the noise is


def patients(n_rows: int) -> np.ndarray:
    rng = np.random.default_rng(n_rows)
    return rng.normal(kinds[rng.integers(0, 3, n_rows)], spread)


def cost(rows: np.ndarray, epsilon: float, seed: int) -> float:
    """The cost of a private run's centers on all rows."""
    units = np.subtract(high, low)
    tables = dict(zip("abcde", np.array_split(rows, 5), strict=True))
    try:
        model = coterie.fit(
            coterie.FederatedKMeans(3, privacy=coterie.Privacy(epsilon=epsilon), random_state=seed),
            tables, policy=POLICY, scale="minmax", ranges=(low, high),
        )  # fmt: skip
    except RowsHidden:
        return np.nan  # the run stops and says so
    squares = ((rows[:, None] - model.cluster_centers_) / units) ** 2
    return squares.sum(axis=2).min(axis=1).sum()


# %% [markdown]
# The mean of three runs each, and how much more it is than the best cost of the pooled rows, without noise. Where
# noise hides the rows a run stops and says so, and there is no point. One center for everyone is the dashed line.

# %%
epsilons, scale = [0.1, 0.3, 1, 3, 10], np.subtract(high, low)
figure, axes = plt.subplots(figsize=(9, 3.8), layout="constrained")
for n_rows in (500, 5_000, 50_000):
    rows = patients(n_rows)
    best = KMeans(3, n_init=10, random_state=0).fit(rows / scale).inertia_
    more = [np.mean([cost(rows, epsilon, seed) for seed in range(3)]) / best - 1 for epsilon in epsilons]
    axes.plot(epsilons, more, marker="o", label=f"{n_rows:,} patients")
    parts = [
        f"epsilon {e:g}: {'stopped' if np.isnan(m) else f'{m:.2%}'}" for e, m in zip(epsilons, more, strict=True)
    ]
    print(f"{n_rows:>6,} patients:", ", ".join(parts))
axes.axhline(((rows / scale - (rows / scale).mean(axis=0)) ** 2).sum() / best - 1, c="#999999", ls="--", lw=1)
axes.set(xscale="log", yscale="log", xlabel="epsilon of one run", ylabel="cost above the best without noise")
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.set_yticks([1e-4, 1e-3, 1e-2, 0.1, 1], ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# Noise is the same however many rows there are, so large tables lose little even at a strict epsilon. [For data
# officers](../privacy.md) says what these numbers mean for a person in the table.
