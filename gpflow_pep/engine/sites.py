"""The Gaussian sites of the collapsed methods: their rules, and the sites of single rows (B = N).

Notation for n rows in a chunk: V = L^-1 Kuf [M, n], d = m diag(Kff - V'V) [n] with the scale m of
the rows, v = s + noise d, w = 1/v, x = d/s. A trailing _bar denotes the derivative of
the objective with respect to a quantity.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf
from typing_extensions import override

from ..maths.linalg import column_products, lower_product, symmetric_product, triangular_solve
from ..runtime import Tensors, WithGradient, derivatives, watching
from .covariances import conditional_variance_of_f
from .gaussian import RowSums, log1p_ratio
from .rows import Rows


class Powers(NamedTuple):
    """
    The three parameters that distinguish the collapsed methods, each [] or [B] (one per block).

    With d the variance of f given u and s the noise:

        site noise  v = s + noise_power d,
        penalty     sum weight log(1 + penalty_power d / s) / penalty_power

    (log det for blocks; a power of 0 is the limit). They are not differentiated.

    ===============  ===========  =============  =============
    method           noise_power  penalty_power  weight
    ===============  ===========  =============  =============
    SGPR             0            0              1/2
    PEP, T-PEP       alpha        alpha          (1 - alpha)/2
    T-SGPR, BT-SGPR  0            1              1/2
    ===============  ===========  =============  =============
    """

    noise_power: tf.Tensor
    penalty_power: tf.Tensor
    weight: tf.Tensor

    @classmethod
    def of_pep(cls, alpha: tf.Tensor) -> "Powers":
        """Return the powers of power EP."""
        return cls(noise_power=alpha, penalty_power=alpha, weight=0.5 * (1.0 - alpha))


class SiteRule:
    """
    A kind of Gaussian site: its sums over the rows of a chunk.

    A rule for single rows defines :meth:`noise`, and :meth:`penalty` if there is one. Automatic
    differentiation gives the derivatives in everything that these methods, or an override of
    :meth:`forward`, use of the rows, and in trainable parameters that they read. A tensor that is
    computed outside of these methods is a constant.

    >>> from gpflow_pep.engine import SiteRule
    >>> class ExponentialSites(SiteRule):
    ...     def noise(self, D, rows, powers):
    ...         return rows.noise * tf.exp(D / rows.noise)
    """

    def noise(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        """Compute the site noise: v of single rows [n], or Sigma of blocks [G, b, b]."""
        raise NotImplementedError(f"{type(self).__name__} must define noise(D, rows, powers).")

    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        """Compute a chunk's part of the penalty, which the evidence subtracts, []; 0 by default."""
        return tf.zeros([], D.dtype)

    def zero(self, L: tf.Tensor, num_outputs: int) -> RowSums:
        """Sums over no rows; L [M, M]."""
        scalar = tf.zeros([], L.dtype)
        return RowSums(
            A=tf.zeros_like(L),
            c=tf.zeros([tf.shape(L)[0], num_outputs], L.dtype),
            quadratic=scalar,
            log_noise=scalar,
            penalty=scalar,
            shared=self._none_shared(L),
        )

    def _none_shared(self, like: tf.Tensor) -> tf.Tensor:
        return tf.zeros([0, 0], like.dtype)

    def _covariance_given_u(self, V: tf.Tensor, L: tf.Tensor, rows: Rows) -> tf.Tensor:
        """Compute D = m (Kff - V'V): its diagonal [n], or blocks [G, b, b]."""
        return rows.scale * conditional_variance_of_f(rows.Kff, V, L)

    def forward(self, V: tf.Tensor, D: tf.Tensor, rows: Rows, powers: Powers) -> RowSums:
        """
        Compute a chunk's sums.

        :raises ValueError: if noise or penalty have another shape.
        """
        noise = self.noise(D, rows, powers)
        penalty = self.penalty(D, rows, powers)
        self._check_shape("noise", noise, V.shape[1:], "one value for each row")
        self._check_shape("penalty", penalty, [], "the sum over the rows")
        A, c, quadratic, log_noise = weighted_sums(V, noise, rows.residual)
        return RowSums(A, c, quadratic, log_noise, penalty, self._none_shared(V))

    def _check_shape(self, method: str, value: tf.Tensor, expected: Any, meaning: str) -> None:
        if not value.shape.is_compatible_with(expected):
            raise ValueError(
                f"{type(self).__name__}.{method} must return {meaning}, of shape "
                f"{list(expected)}, got {value.shape.as_list()}."
            )

    def leave_one_out_terms(self, L: tf.Tensor, rows: Rows, powers: Powers) -> Tensors:
        """
        Return V [M, n], variances given u [n], e [M, n], v [n], r [n, P]: a row adds e e'/v to A
        and e r/v to c.
        """
        V, D = given_u(self, L, rows)
        variance = self._variance_given_u(D, rows)
        return V, variance, V, self.noise(D, rows, powers), rows.residual

    def _variance_given_u(self, D: tf.Tensor, rows: Rows) -> tf.Tensor:
        """Compute diag(D)/m, the variance of f given u without the scale, [n]."""
        return D / rows.scale


def given_u(sites: SiteRule, L: tf.Tensor, rows: Rows) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute V = L^-1 Kuf [M, n], and D: its diagonal [n], or blocks [G, b, b]."""
    V = triangular_solve(L, rows.Kuf)
    return V, sites._covariance_given_u(V, L, rows)


def adjoint(
    sites: SiteRule,
    L: tf.Tensor,
    V: tf.Tensor,
    rows: Rows,
    powers: Powers,
    bar: RowSums,
    variables: Sequence[tf.Variable],
) -> tuple[tf.Tensor, Rows, list[tf.Tensor]]:
    """
    Compute a chunk's part of L' L_bar = -V_bar V', its lower triangle, and the derivatives in the
    rows and in variables that the rule reads.
    """
    sources = V, *rows, *variables
    with watching(sources) as tape:
        sums = sites.forward(V, sites._covariance_given_u(V, L, rows), rows, powers)
    V_bar, *bars = derivatives(tape, tuple(sums), sources, tuple(bar))
    rows_bar = Rows(*bars[: len(rows)])
    Kuf_bar = rows_bar.Kuf + triangular_solve(L, V_bar, adjoint=True)
    return -lower_product(V_bar, V), rows_bar._replace(Kuf=Kuf_bar), bars[len(rows) :]


@tf.custom_gradient
def weighted_sums(V: tf.Tensor, v: tf.Tensor, r: tf.Tensor) -> WithGradient:
    """
    Compute A, c, quadratic and log_noise of rows with V [M, n], site noise v [n] and residuals r [n,
    P]. The derivatives take one product of M rows and columns.
    """
    w = 1.0 / v
    wr = w[:, None] * r
    whitened = V * tf.sqrt(w)  # one factor: on GPUs XLA copies each factor

    def gradient(A: tf.Tensor, c: tf.Tensor, quadratic: tf.Tensor, log_noise: tf.Tensor) -> Tensors:
        AV = tf.matmul(A + tf.transpose(A), V)  # [M, n]
        qr = quadratic * r
        cV = tf.matmul(V, c, transpose_a=True) + qr  # [n, P]
        w_bar = 0.5 * column_products(AV, V) + tf.reduce_sum(cV * r, axis=-1)
        return (
            AV * w + tf.matmul(c, wr, transpose_b=True),
            w * (log_noise - w * w_bar),
            w[:, None] * (cV + qr),
        )

    return (
        symmetric_product(whitened, whitened),
        tf.matmul(V, wr),
        tf.reduce_sum(wr * r),
        tf.reduce_sum(tf.math.log(v)),
    ), gradient


class IndependentSites(SiteRule):
    """The sites and the penalty of :class:`.Powers`, one for each row."""

    @override
    def noise(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return rows.noise + powers.noise_power * D

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return tf.reduce_sum(powers.weight * log1p_ratio(powers.penalty_power, D / rows.noise))


class LinearAdjoint(NamedTuple):
    """
    The adjoint of :class:`IndependentSites` if both powers are 0, and weight and scale m one number
    each (SGPR).

    Then d enters linearly: with S = 2 A_bar - 2 m weight penalty_bar I the derivative in Kuf is

        L^-T (S V + c_bar r') diag(w),

    and V diag(d_bar) V' is a multiple of A. If Kuu is well-conditioned, a chunk takes a single
    product, of H = L^-T S L^-1 and Kuf, whose rounding error grows with the condition number of Kuu
    and the precision of the sites. Otherwise V = L^-1 Kuf is solved for. In single precision it is
    multiplied by P = L^-T S, whose error grows with the square roots of both; in double precision
    it is multiplied by S and another solve follows, since S V and c_bar r' nearly cancel before it.
    """

    by_one_product: tf.Tensor  # True if H is used, []
    L: tf.Tensor
    left: tf.Tensor  # H, P or S, [M, M]
    c: tf.Tensor  # L^-T c_bar, but c_bar with S, [M, P]
    right_c: tf.Tensor  # Factor of Kuf or V in V'c_bar: L^-T c_bar with H, otherwise c_bar
    trace: tf.Tensor  # Derivative in x/m, []
    quadratic: tf.Tensor  # Derivatives of the objective, []
    log_noise: tf.Tensor

    def of_rows(self, rows: Rows, *, in_single: bool) -> Rows:
        """Compute the derivatives with respect to a chunk's rows; `in_single`: as they were made."""
        return Rows(
            *tf.cond(
                self.by_one_product,
                partial(self.from_product, rows),
                partial(self._from_solves, rows, in_single),
            )
        )

    def from_product(self, rows: Rows) -> Rows:
        """Compute the derivatives with H."""
        return self._of_rows(rows, rows.Kuf, rows.Kuf)

    def _from_solves(self, rows: Rows, in_single: bool) -> Rows:
        """Compute the derivatives with V."""
        V = triangular_solve(self.L, rows.Kuf)  # [M, n]
        if in_single:
            return self._of_rows(rows, V, rows.Kuf)
        rows_bar = self._of_rows(rows, V, V)
        return rows_bar._replace(Kuf=triangular_solve(self.L, rows_bar.Kuf, adjoint=True))

    def _of_rows(self, rows: Rows, right: tf.Tensor, left: tf.Tensor) -> Rows:
        """Compute the derivatives from `right` and `left`, Kuf or V; without the last solve."""
        w, r = 1.0 / rows.noise, rows.residual  # [n], [n, P]
        q_bar = self.quadratic
        G = tf.matmul(self.left, right)  # [M, n]
        cV = tf.matmul(right, self.right_c, transpose_a=True)  # [n, P]
        w_bar = 0.5 * column_products(G, left) + tf.reduce_sum((cV + q_bar * r) * r, axis=-1)
        return Rows(
            Kuf=G * w + tf.matmul(self.c, w[:, None] * r, transpose_b=True),
            Kff=self.trace * w,
            noise=w * (self.log_noise - w * (w_bar + self.trace * rows.Kff)),
            residual=w[:, None] * (cV + 2.0 * q_bar * r),
            scale=tf.zeros_like(rows.scale),  # added for all rows at once
        )


def linear_adjoint(
    L: tf.Tensor,
    sums: RowSums,
    powers: Powers,
    scale: tf.Tensor,
    bar: RowSums,
    by_one_product: tf.Tensor | None = None,
    *,
    in_single: bool = False,
) -> tuple[LinearAdjoint, tf.Tensor, tf.Tensor]:
    """
    Return the adjoint for powers of 0, L' L_bar and the derivative in the scale.

    :param bar: derivatives in the sums.
    :param by_one_product: whether derivatives are computed with H, [], or with V; None: with H.
    :param in_single: chunks may be in single precision.
    """
    trace = scale * powers.weight * bar.penalty
    S = 2.0 * tf.linalg.set_diag(bar.A, tf.linalg.diag_part(bar.A) - trace)

    def solved(value: tf.Tensor) -> tf.Tensor:
        return triangular_solve(L, value, adjoint=True)

    def with_H() -> Tensors:
        c = solved(bar.c)
        return solved(tf.transpose(solved(S))), c, c

    def with_V() -> Tensors:
        return (solved(S), solved(bar.c), bar.c) if in_single else (S, bar.c, bar.c)

    if by_one_product is None:
        by_one_product = tf.constant(True)
        left, c, right_c = with_H()
    else:
        left, c, right_c = tf.cond(by_one_product, with_H, with_V)
    linear = LinearAdjoint(by_one_product, L, left, c, right_c, trace, bar.quadratic, bar.log_noise)
    VDV = trace * sums.A  # since d_bar is a multiple of the site precision
    of_c = tf.matmul(bar.c, sums.c, transpose_b=True)
    LtL_bar = 2.0 * (VDV - tf.matmul(bar.A, sums.A)) - of_c
    return linear, LtL_bar, bar.penalty * sums.penalty / scale
