# %% [markdown]
# # Heart disease in four hospitals
#
# Four hospitals want one logistic regression of heart disease on six measurements, with intervals that can be
# quoted. The rows stay in the hospitals. A hospital sends only what it has computed about the coefficients.
#
# The data is the UCI heart disease set (Janosi, Steinbrunn, Pfisterer, Detrano; CC BY 4.0). Set `HEART_FOLDER`
# to a folder with the four files `processed.*.data`. **Without that folder the script makes up rows**, and the
# figure also shows the coefficients with which it made them.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fedstein

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
MEASURED = [
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalach",
    "exang",
    "oldpeak",
    "slope",
    "ca",
    "thal",
]
COLUMNS = [*MEASURED, "target"]
# Units that need nobody's statistics: the value at which a feature is 0, and the step that counts as 1.
UNITS = {
    "age": (55, 10),
    "sex": (0, 1),
    "trestbps": (130, 20),
    "thalach": (140, 20),
    "exang": (0, 1),
    "oldpeak": (1, 1),
}
TRUE = {"age": 0.3, "sex": 1.0, "trestbps": 0.1, "thalach": -0.5, "exang": 1.2, "oldpeak": 0.6}


def read_hospital(path: Path) -> pd.DataFrame:
    rows = pd.read_csv(path, header=None, names=COLUMNS, na_values="?")
    rows = rows[rows["age"] != "age"].apply(pd.to_numeric, errors="coerce")  # a header line, if there is one
    rows = rows[[*UNITS, "target"]].dropna()
    return rows.assign(target=(rows["target"] > 0).astype(int))


def made_up_hospital(number: int) -> pd.DataFrame:
    draw = np.random.default_rng(number)
    n = (200, 150, 60, 100)[number]
    rows = pd.DataFrame(
        {
            "age": draw.normal(50 + 3 * number, 9, n),
            "sex": draw.random(n) < 0.7,
            "trestbps": draw.normal(131, 18, n),
            "thalach": draw.normal(145 - 5 * number, 22, n),
            "exang": draw.random(n) < 0.35,
            "oldpeak": draw.gamma(1.0, 1.0, n),
        }
    ).astype(float)
    logit = -1.2 + sum(TRUE[c] * (rows[c] - zero) / step for c, (zero, step) in UNITS.items())
    return rows.assign(target=(draw.random(n) < 1 / (1 + np.exp(-logit))).astype(int))


folder = os.environ.get("HEART_FOLDER")
if folder:
    hospitals = {name: read_hospital(Path(folder) / f"processed.{name}.data") for name in HOSPITALS}
else:
    print("HEART_FOLDER is not set: these are made-up rows, not patients.")
    hospitals = {name: made_up_hospital(number) for number, name in enumerate(HOSPITALS)}
for name, rows in hospitals.items():
    print(f"{name:12} {len(rows):4} rows, {rows['target'].mean():.0%} ill")

# %% [markdown]
# Each hospital scales its own rows with units that the hospitals have agreed on. Every fifth row is held out.

# %%
for name, rows in hospitals.items():
    hospitals[name] = rows.assign(**{c: (rows[c] - zero) / step for c, (zero, step) in UNITS.items()}).astype("float32")
    hospitals[name]["target"] = rows["target"]
train = {name: rows[np.arange(len(rows)) % 5 > 0] for name, rows in hospitals.items()}
test = pd.concat([rows[np.arange(len(rows)) % 5 == 0] for rows in hospitals.values()])

posterior = fedstein.fit("blr", train, target="target", rounds=16, standardise=False, sites__expand="variational")
posterior

# %% [markdown]
# The summary lists the coefficients by name, with 90% intervals. The draws are weighted by the clients'
# likelihoods. They are not a Markov chain, so they have an effective sample size and no R-hat.

# %%
summary = posterior.summary()
print(summary.round(2).to_string())
for problem in posterior.problems:
    print("Not to be trusted:", problem)

# %%
intervals = np.exp(posterior.interval(0.9))[: len(UNITS)]
middle = np.exp(np.median(posterior.draws(), axis=0))[: len(UNITS)]
figure, axes = plt.subplots(figsize=(6, 3))
axes.hlines(range(len(UNITS)), intervals[:, 0], intervals[:, 1], color="tab:blue")
axes.plot(middle, range(len(UNITS)), "o", color="tab:blue", label="median and 90% interval")
if not folder:
    axes.plot(np.exp(list(TRUE.values())), range(len(UNITS)), "x", color="black", label="made-up truth")
axes.axvline(1, color="grey", linewidth=0.8)
axes.set_xscale("log")
axes.set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
axes.minorticks_off()
axes.set_yticks(range(len(UNITS)), [f"{c}, +{step}" for c, (_, step) in UNITS.items()])
axes.set_xlabel("odds ratio of heart disease")
axes.legend(frameon=False, fontsize=8)
figure.tight_layout()
plt.show()

# %% [markdown]
# Predictions for the held-out patients:

# %%
probabilities = posterior.predict_proba(test[list(UNITS)], using="nuts")[:, 1]
ill = test["target"].to_numpy()
print(f"held out: {len(ill)} rows, accuracy {np.mean((probabilities > 0.5) == ill):.3f}")
print(f"mean log-loss {-np.mean(np.log(np.where(ill == 1, probabilities, 1 - probabilities))):.3f}")
