"""Base class of collapsed regression models: blocks, sums and evidence."""

from abc import abstractmethod

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, RegressionData, TensorData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.logdensities import gaussian
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingPointsLike
from gpflow.utilities import to_default_float
from typing_extensions import override

from .. import validation
from ..engine import (
    BlockChunks,
    BlockSites,
    Chunks,
    IndependentSites,
    OneChunk,
    Powers,
    Prior,
    RegressionRows,
    RowChunks,
    RowSums,
    SiteRule,
    SiteSums,
    accumulate_sums,
    collapsed_leave_one_out,
    log_gaussian,
    mahalanobis,
)
from ..maths.linalg import finite
from ..runtime import no_autograph
from .parts import Part
from .sparse import SparseGP, checked_data, columns

_ADVICE = (
    "checking parameters, mean function and noise variance for NaN, infinite or overflowing values"
)


class CollapsedRegression(SparseGP):
    """
    GP regression with M inducing variables u whose posterior is available in closed form, given
    Gaussian sites.

        q(u) ∝ p(u) ∏_b N(y_b; m(X_b) + K_bu Kuu⁻¹ u, v_b).

    Its evidence is, with the site noise v,

        log N(y; m, Qff + v) - penalty + terms.

    A model defines :meth:`site_powers`. It may override :meth:`site_rule` for another kind of site,
    :meth:`evidence_penalty`, :meth:`evidence_terms` and :meth:`conditional_scale`, and
    :meth:`check_block_sizes` if its settings allow only some partitions of the rows.

    >>> from gpflow_pep.engine import Powers
    >>> from gpflow_pep.models.collapsed import CollapsedRegression
    >>> class DTC(CollapsedRegression):
    ...     def site_powers(self):
    ...         zero = tf.constant(0.0, gpflow.default_float())
    ...         return Powers(noise_power=zero, penalty_power=zero, weight=zero)
    >>> X = np.linspace(0.0, 6.0, 50)[:, None]
    >>> bound = PEPR((X, np.sin(X)), gpflow.kernels.Matern52(), X[::10], alpha=0.0).elbo()
    >>> bool(DTC((X, np.sin(X)), gpflow.kernels.Matern52(), X[::10]).log_posterior_density() > bound)
    True
    """

    _shares_covariance = True

    single_chunk: bool
    """
    Process all rows as one chunk, in half the time but with memory that grows with their number;
    takes effect when a function is traced. True until the data first exceed a chunk; `fit` and
    streams then compile again.
    """

    mixed_precision: bool
    """
    Compute with rows in single precision if that is accurate enough; takes effect when a function
    is traced.
    """

    # Rows per block, if all blocks have one size and consecutive rows.
    _block_size: int | None = None

    def __init__(
        self,
        data: RegressionData | tf.data.Dataset,
        kernel: Kernel,
        inducing_variable: InducingPointsLike,
        *,
        mean_function: MeanFunction | None = None,
        noise_variance: TensorData | None = None,
        likelihood: Gaussian | None = None,
        chunk_size: int | None = None,
        max_jitter: float | None = None,
        mixed_precision: bool = False,
    ):
        """See :class:`.PEPR` for the arguments, of which alpha, scale and blocks do not apply."""
        held = checked_data(data, chunk_size)
        if likelihood is not None and noise_variance is not None:
            raise ValueError("noise_variance and likelihood cannot both be given.")
        if noise_variance is None:
            noise_variance = 1.0
        if likelihood is None:
            likelihood = Gaussian(validation.noise_variance(noise_variance))
        super().__init__(
            held,
            kernel,
            likelihood,
            inducing_variable,
            mean_function,
            num_latent_gps=columns(held)[1],
            chunk_size=chunk_size,
            max_jitter=max_jitter,
        )
        self.mixed_precision = validation.boolean(mixed_precision, "mixed_precision")
        self.single_chunk = bool(self._data) and int(self._local_num_data()) <= self._chunk_size

    @Part
    def likelihood(self, likelihood: object) -> Gaussian:
        """The likelihood, whose noise may depend on x."""
        return validation.gaussian(likelihood)

    def _use_blocks(self, blocks: object) -> None:
        """Use one site and one penalty term per block of :class:`PEPR`; None: per row."""
        if blocks is None:
            return
        if not self._data:
            raise ValueError(
                f"blocks must be None if data is a dataset, got {type(blocks).__name__}."
            )
        if self.mixed_precision:
            raise ValueError(
                f"mixed_precision must be False with blocks, got {self.mixed_precision!r}."
            )
        rows, sizes = validation.partition(blocks, int(self._local_num_data()))
        self._chunks = BlockChunks(rows, sizes, self._chunk_size, self._devices)
        self._block_size = int(blocks) if isinstance(blocks, int | np.integer) else None

    @abstractmethod
    def site_powers(self) -> Powers:
        """Return the powers that define the site noise v and the penalty."""

    def conditional_scale(self) -> tf.Tensor:
        """Return m of the structured conditional M = m I, [] or one per block [B]."""
        return to_default_float(1.0)

    def evidence_penalty(self, row_sums: RowSums) -> tf.Tensor:
        """
        Return what the evidence subtracts per output, []; by default the penalty of the sites.
        """
        return row_sums.penalty

    def evidence_terms(self, powers: Powers) -> tf.Tensor:
        """
        Return what the evidence adds per output, besides the density and the penalty, []; by
        default 0.
        """
        return to_default_float(0.0)

    def site_rule(self) -> SiteRule:
        """
        Return the rule of site noise and penalty; by default the rule of :class:`.Powers`, of rows
        or blocks.
        """
        if isinstance(self._chunks, BlockChunks):
            return BlockSites()
        return IndependentSites()

    def check_block_sizes(self, sizes: AnyNDArray) -> None:
        """Raise an error if the model's settings do not allow blocks of these sizes [B]."""

    @property
    def num_blocks(self) -> int:
        """Number of blocks B, summed over workers."""
        return int(self._workers.sum(self._local_num_blocks()))

    def _local_num_blocks(self) -> tf.Tensor:
        """Return the number of blocks of this worker, []."""
        if isinstance(self._chunks, BlockChunks):
            return tf.size(self._chunks.sizes)
        return self._local_num_data()

    @override
    def assign_data(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        num_data = len(X)
        if not isinstance(self._chunks, BlockChunks):
            self.check_block_sizes(np.ones(num_data, dtype=int))
        elif num_data != int(self._chunks.num_rows):
            if self._block_size is None:
                raise ValueError(
                    f"data must keep {int(self._chunks.num_rows)} rows, since blocks were given "
                    f"row by row, got {num_data}."
                )
            rows, sizes = validation.partition(self._block_size, num_data)
            self.check_block_sizes(sizes)
            self._chunks.replan(rows, sizes)
        super().assign_data(X, Y)
        self.single_chunk &= num_data <= self._chunk_size

    @override
    def run_identity(self) -> dict[str, object]:
        labels = self._chunks.variables if isinstance(self._chunks, BlockChunks) else ()
        return super().run_identity() | {"blocks": self._block_size or labels}

    @override
    def site_sums(self) -> SiteSums:
        powers = self.site_powers()
        sums, _ = self._of_sites(powers)
        return sums.with_old(self._old_site(sums.L, powers.noise_power))

    def _of_sites(
        self, powers: Powers, *, of_single_rows: bool = False, noise_factor: tf.Tensor | None = None
    ) -> tuple[SiteSums, RowSums]:
        """
        Return sums over sites and terms of the evidence; `of_single_rows`: in double precision, no
        blocks, m = 1.
        """
        chunks: Chunks = self._chunks
        prior, scale, sites = self._prior(), self.conditional_scale(), self.site_rule()
        if of_single_rows:
            scale, sites = to_default_float(1.0), IndependentSites()
            if isinstance(chunks, BlockChunks):
                chunks = RowChunks(self._chunk_size, self._devices)
        if isinstance(chunks, RowChunks) and self.single_chunk and self._workers.count == 1:
            chunks = OneChunk()
        rows, Kuu = self._rows(chunks, prior, scale, noise_factor), self._inducing_covariance(prior)
        mixed = self.mixed_precision and not of_single_rows
        return accumulate_sums(
            rows, sites, powers, Kuu=Kuu, factorize=self._factorize, mixed_precision=mixed
        )

    def _rows(
        self, chunks: Chunks, prior: Prior, scale: tf.Tensor, noise_factor: tf.Tensor | None = None
    ) -> RegressionRows:
        counts = []
        if isinstance(chunks, BlockChunks):
            counts.append(chunks.num_rows)
        return RegressionRows(
            self._equally_many("blocks", *counts),
            chunks,
            prior,
            self.likelihood,
            self.mean_function,
            noise_factor,
            scale=scale,
            workers=self._workers,
        )

    @inherit_check_shapes
    @no_autograph
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        powers = self.site_powers()
        sums, row_sums = self._of_sites(powers)
        old = self._old_site(sums.L, powers.noise_power)
        others = self.evidence_terms(powers) - self.evidence_penalty(row_sums)
        objective = (
            log_gaussian(sums.with_old(old), row_sums, self.num_data) + self.num_latent_gps * others
        )
        if old is not None:
            objective += old.terms
        return finite(objective, name="the objective", advice=_ADVICE)

    @check_shapes("return: [N]")
    @no_autograph
    def loo_log_predictive_density(self) -> tf.Tensor:
        """
        Compute the leave-one-out log predictive density of every row, summed over its outputs, in
        nats.

        Each is exact at the current hyperparameters. Costs one pass over the data. Not
        differentiable.
        """
        errors, variances = self._leave_one_out()
        densities = tf.reduce_sum(gaussian(errors, 0.0, variances[:, None]), axis=-1)
        return finite(densities, name="the leave-one-out densities", advice=_ADVICE)

    def _leave_one_out(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Compute y minus its mean given the other rows, [N, P], and the variance of this prediction,
        noise included, [N].
        """
        rows = self._rows(self._chunks, self._prior(), self.conditional_scale())
        return collapsed_leave_one_out(rows, self.site_rule(), self.site_powers(), self.site_sums())


class BoundsMixin(CollapsedRegression):
    """
    A model of all rows, which bound the log evidence from below and above; a stream does not keep
    earlier batches.
    """

    @check_shapes("return: []")
    @no_autograph
    def elbo(self) -> tf.Tensor:
        """Return the objective, a lower bound on the log evidence, in nats."""
        return self.maximum_log_likelihood_objective()

    @check_shapes("return: []")
    @no_autograph
    def upper_bound(self) -> tf.Tensor:
        """
        Compute an upper bound on the exact log evidence, independent of the model's sites (Titsias
        2014).

            -P/2 log|2 pi (Qff + S)| - 1/2 r' (Qff + (1 + t) S)^-1 r,     t = tr(S^-1 (Kff - Qff))

        With constant noise it is the upper bound of `gpflow.models.SGPR` (correct there for one
        output only).

        :return: nats, summed over outputs.
        """
        vfe = Powers.of_pep(to_default_float(0.0))
        sums, row_sums = self._of_sites(vfe, of_single_rows=True)
        wider = self._of_sites(vfe, of_single_rows=True, noise_factor=1.0 + 2.0 * row_sums.penalty)
        bound = log_gaussian(sums, row_sums, self.num_data) + 0.5 * (
            mahalanobis(sums, row_sums) - mahalanobis(*wider)
        )
        return finite(bound, name="the upper bound", advice=_ADVICE)
