"""A kernel: the inverse multiquadric, k = (1 + r)^(-1/2), r the squared distance over the bandwidth."""

from fedstein.stein.kernel import radial_kernel

IMQ = radial_kernel("imq", "inverse multiquadric", lambda r: (1 + r) ** -0.5)
