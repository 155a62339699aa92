"""The latency models that the compiled engine knows."""

from kvsim.latency.affine import Affine
from kvsim.latency.measured import Measured
from kvsim.latency.roofline import Roofline

Built = Affine | Roofline | Measured
