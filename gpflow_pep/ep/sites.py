"""The sites of all rows: the variables that hold them, and the status of their last update."""

from dataclasses import dataclass

import tensorflow as tf

from ..runtime.distribution import local_variable
from .cavity import Site


@dataclass(frozen=True, repr=False)
class SitesStatus:
    """How an update of the sites ended."""

    converged: bool
    """Whether the last change was at most the tolerance."""

    sweeps: int
    """
    Parallel sweeps after the first evaluation. Where sites do not converge, the last one evaluates the best sites, so
    that there may be ``max_sweeps + 1``.
    """

    change: float
    """
    The largest change of a marginal that an undamped update of its own site would make, as a fraction of the marginal's
    standard deviation (for the mean) or variance.
    """

    log_evidence: float
    """The energy at the sites: an approximation to log p(y), in nats."""

    damping: float
    """The fraction of an update that was taken in the end."""

    def __repr__(self) -> str:
        """Return a line with rounded numbers."""
        end = "converged" if self.converged else "not converged"
        numbers = f"change {self.change:.2g}, log_evidence {self.log_evidence:.8g}, damping {self.damping:.2g}"
        return f"SitesStatus({end}, {self.sweeps} sweeps, {numbers})"


class Sites(tf.Module):
    """The sites of all rows, [N, C] each: variables, which compiled functions see change."""

    def __init__(self, num_data: int, num_latent_gps: int, dtype: tf.DType):
        super().__init__()
        zeros = tf.zeros([num_data, num_latent_gps], dtype)
        self.precision, self.linear = (
            local_variable(zeros, trainable=False, shape=[None, num_latent_gps], dtype=dtype) for _ in range(2)
        )

    def reset(self, num_data: int) -> None:
        """Make q the prior: sites of `num_data` rows with natural parameters 0."""
        for variable in (self.precision, self.linear):
            variable.assign(tf.zeros([num_data, variable.shape[1]], variable.dtype))

    def values(self) -> Site:
        """Return the natural parameters, [N, C] each."""
        return Site(tf.identity(self.precision), tf.identity(self.linear))

    def assign(self, values: Site) -> None:
        """Set the natural parameters, [N, C] each."""
        self.precision.assign(values.precision)
        self.linear.assign(values.linear)

    def stacked(self) -> tf.Tensor:
        """Return the natural parameters as one tensor, [N, 2, C]."""
        return tf.stack([self.precision, self.linear], axis=1)
