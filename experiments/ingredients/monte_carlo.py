"""Hamiltonian Monte Carlo for u and the parameters, a baseline of classification."""

from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData
from gpflow.models import SGPMC

from gpflow_pep.runtime import assign_all

_STEPS = 10  # leapfrog steps of a proposal


class MonteCarlo(SGPMC):
    """
    GPflow's `SGPMC`: samples of u and the kernel's parameters; the others stay as trained.

    Predictions are means over the samples, and before :meth:`sample` those of the parameters.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        for parameter in self.kernel.trainable_parameters:
            parameter.prior = tfp.distributions.LogNormal(
                *map(gpflow.utilities.to_default_float, (0.0, 1.0))
            )
        self._sampled = [self.V, *self.kernel.trainable_parameters]
        self._samples: list[tf.Tensor] = []

    def sample(self, samples: int, seed: int) -> None:
        """Draw samples from the present parameters on, after as many that adapt the size of a step."""
        for part in (self.inducing_variable, self.likelihood):
            gpflow.set_trainable(part, False)
        helper = gpflow.optimizers.SamplingHelper(self.log_posterior_density, self._sampled)
        proposal = tfp.mcmc.HamiltonianMonteCarlo(
            helper.target_log_prob_fn, step_size=0.01, num_leapfrog_steps=_STEPS
        )
        adapted = tfp.mcmc.SimpleStepSizeAdaptation(
            proposal,
            num_adaptation_steps=samples * 4 // 5,
            target_accept_prob=gpflow.utilities.to_default_float(0.75),
            adaptation_rate=0.1,
        )
        chain = tf.function(
            lambda: tfp.mcmc.sample_chain(
                samples,
                helper.current_state,
                kernel=adapted,
                num_burnin_steps=samples,
                trace_fn=None,
                seed=seed,
            )
        )
        self._samples = list(zip(*map(tf.unstack, chain()), strict=True))

    def predict_y(self, Xnew: Any, full_cov: bool = False, full_output_cov: bool = False) -> Any:
        """Return mean and variance of the mixture of the samples' predictions."""
        means, variances = zip(*self._for_each(lambda: SGPMC.predict_y(self, Xnew)), strict=True)
        mean = tf.reduce_mean(means, axis=0)
        return mean, tf.reduce_mean(variances + tf.square(means - mean), axis=0)

    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Return the log density of the mixture [N]."""
        densities = [*self._for_each(lambda: SGPMC.predict_log_density(self, data))]
        return tf.reduce_logsumexp(densities, axis=0) - tf.math.log(
            tf.cast(len(densities), densities[0].dtype)
        )

    def _for_each(self, predict: Callable[[], Any]) -> Iterator[Any]:
        """Predict with the parameters of every sample; the present parameters stay."""
        variables = [parameter.unconstrained_variable for parameter in self._sampled]
        present = [variable.read_value() for variable in variables]
        for values in self._samples or [present]:
            assign_all(variables, values)
            yield predict()
        assign_all(variables, present)
