# %% [markdown]
# # A convolutional network on images
#
# Five clients hold images of handwritten digits (scikit-learn, 8 × 8 pixels). Each client has few classes.
# `from_flax` makes a Bayesian model from a Flax NNX network, and the federation keeps eight particles of it.
# Held-out images show how certain its predictions are.

# %%
import matplotlib.pyplot as plt
import numpy as np
from flax import nnx
from sklearn.datasets import load_digits

import fedstein
from fedstein.models import from_flax


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.convolution = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.output = nnx.Linear(4 * 4 * 8, 10, rngs=rngs)

    def __call__(self, x):  # rows x 8 x 8 x 1 -> rows x 10 logits
        x = nnx.max_pool(nnx.relu(self.convolution(x)), (2, 2), (2, 2))
        return self.output(x.reshape(len(x), -1))


model = from_flax(
    Network(nnx.Rngs(0)),
    likelihood="categorical",
    input_shape=(8, 8, 1),
    prior_scale=1.0,
    init=lambda rngs: Network(rngs),
)
print(f"{model.dim} parameters")

# %% [markdown]
# Client k has the digits 2k and 2k + 1, and a few images of every other digit. The rows are flattened, and
# `input_shape` turns them into images again for the network.

# %%
images, digits = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
draw = np.random.default_rng(0)
order = draw.permutation(len(digits))
held_out, rest = order[:400], order[400:1200]
owner = np.where(draw.random(len(rest)) < 0.8, digits[rest] // 2, draw.integers(0, 5, len(rest)))
clients = {f"client {k}": (images[rest[owner == k]], digits[rest[owner == k]]) for k in range(5)}
for name, (_, labels) in clients.items():
    print(name, len(labels), "images, by digit:", np.bincount(labels, minlength=10))

# %% [markdown]
# The network has more than 200 parameters, so Fedstein uses diagonal curvature sites, and HIP chooses which
# client trains. `sites__label_samples=1` draws one label for each row, which makes the curvature cheap.

# %%
test = (images[held_out], digits[held_out])
posterior = fedstein.fit(
    model,
    clients,
    test=test,
    rounds=25,
    algorithm__particles=8,
    algorithm__step_size=0.02,
    sites__label_samples=1,
    evaluate__every=5,
)
for record in posterior.rounds:
    if record["accuracy"] is not None:
        scores = ", ".join(f"{name} {record[name]:.3f}" for name in ("accuracy", "nll", "ece"))
        print(f"round {record['round']:2}: {scores}")

# %% [markdown]
# The most uncertain of the held-out images:

# %%
probabilities = posterior.predict(test[0])
entropy = -np.sum(probabilities * np.log(probabilities + 1e-12), axis=1)
figure, axes = plt.subplots(1, 6, figsize=(8, 1.9))
for panel, row in zip(axes, np.argsort(-entropy)[:6], strict=True):
    panel.imshow(test[0][row].reshape(8, 8), cmap="Greys")
    first, second = np.argsort(-probabilities[row])[:2]
    panel.set_title(f"{first}: {probabilities[row, first]:.0%}\n{second}: {probabilities[row, second]:.0%}", fontsize=9)
    panel.set_xlabel(f"is {test[1][row]}", fontsize=9)
    panel.set_xticks([])
    panel.set_yticks([])
figure.tight_layout()
plt.show()
