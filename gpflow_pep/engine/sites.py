"""The Gaussian sites of the collapsed methods: their rules, and the sites of single rows (B = N).

Notation for n rows in a chunk: V = L^-1 Kuf [..., M, n], d = m diag(Kff - V'V) [..., n] with the
scale m of the rows, v = s + noise d, w = 1/v, x = d/s. A trailing _bar denotes the derivative of
the objective with respect to a quantity.
"""

from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf
from typing_extensions import Self, override

from ..maths.linalg import column_products, symmetric_product, triangular_solve
from ..runtime.custom_gradients import derivatives
from .covariances import conditional_variance_of_f
from .penalty import log1p_ratio
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


class RowSums(NamedTuple):
    """
    Sums over rows, or derivatives in them; v: site noise, r: residual, V = L^-1 Kuf; [...]: leading
    ones of Kuu.
    """

    A: tf.Tensor  # V diag(1/v) V', [..., M, M]
    c: tf.Tensor  # V diag(1/v) r, [..., M, P]
    quadratic: tf.Tensor  # r' diag(1/v) r summed over outputs, [...]
    log_noise: tf.Tensor  # log det of the site noise, [...]
    penalty: tf.Tensor  # Subtracted from the evidence, [...]
    shared: tf.Tensor  # Sum of S^-1/2 D_b S^-1/2 over blocks that share M, [b, b]; otherwise [0, 0]


class SiteRule:
    """
    A kind of Gaussian site: its sums over the rows of a chunk, and their derivatives.

    A rule for single rows defines :meth:`noise`, and :meth:`penalty` if there is one. Automatic
    differentiation gives the derivatives in everything that these methods, or an override of
    :meth:`forward`, use of the rows. Faster derivatives by hand serve :class:`IndependentSites`
    only, not its subclasses, whose methods may differ.

    >>> from gpflow_pep.engine import SiteRule
    >>> class ExponentialSites(SiteRule):
    ...     def noise(self, D, rows, powers):
    ...         return rows.noise * tf.exp(D / rows.noise)
    """

    def noise(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        """Compute the site noise: v of single rows [..., n], or Sigma of blocks [G, b, b]."""
        raise NotImplementedError(f"{type(self).__name__} must define noise(D, rows, powers).")

    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        """
        Compute a chunk's part of the penalty, which the evidence subtracts, [...]; 0 by default.
        """
        return tf.zeros(tf.shape(D)[:-1], D.dtype)

    def zero(self, L: tf.Tensor, num_outputs: int) -> RowSums:
        """Sums over no rows; L [..., M, M]."""
        scalar = tf.zeros_like(L[..., 0, 0])
        c = tf.zeros(tf.concat([tf.shape(L)[:-1], [num_outputs]], 0), L.dtype)
        return RowSums(
            A=tf.zeros_like(L),
            c=c,
            quadratic=scalar,
            log_noise=scalar,
            penalty=scalar,
            shared=tf.zeros([0, 0], L.dtype),
        )

    def _covariance_given_u(self, V: tf.Tensor, L: tf.Tensor, rows: Rows) -> tf.Tensor:
        """Compute D = m (Kff - V'V): its diagonal [..., n], or blocks [G, b, b]."""
        return rows.scale * conditional_variance_of_f(rows.Kff, V, L)

    def forward(self, V: tf.Tensor, D: tf.Tensor, rows: Rows, powers: Powers) -> RowSums:
        """
        Compute a chunk's sums.

        :raises ValueError: if noise or penalty have another shape.
        """
        noise = self.noise(D, rows, powers)
        penalty = self.penalty(D, rows, powers)
        n = V.shape[-1]
        self._check_shape("noise", noise, [*V.shape[:-2], n], "one value for each row")
        self._check_shape("penalty", penalty, V.shape[:-2], "the sum over the rows")
        return weighted_sums(V, 1.0 / noise, rows.residual, penalty)

    def _check_shape(self, method: str, value: tf.Tensor, expected: Any, meaning: str) -> None:
        if not value.shape.is_compatible_with(expected):
            raise ValueError(
                f"{type(self).__name__}.{method} must return {meaning}, of shape "
                f"{list(expected)}, got {value.shape.as_list()}."
            )

    def adjoint(
        self, L: tf.Tensor, V: tf.Tensor, rows: Rows, powers: Powers, bar: RowSums
    ) -> tuple[tf.Tensor, Rows]:
        """Compute a chunk's part of L' L_bar = -V_bar V', and the derivatives in the rows."""
        sources = V, *rows
        with tf.GradientTape() as tape:
            tape.watch(sources)
            sums = self.forward(V, self._covariance_given_u(V, L, rows), rows, powers)
        V_bar, Kuf_bar, *others_bar = derivatives(tape, tuple(sums), sources, tuple(bar))
        Kuf_bar += triangular_solve(L, V_bar, adjoint=True)
        return -tf.matmul(V_bar, V, transpose_b=True), Rows(Kuf_bar, *others_bar)

    def leave_one_out_terms(
        self, L: tf.Tensor, rows: Rows, powers: Powers
    ) -> tuple[tf.Tensor, ...]:
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
    """Compute V = L^-1 Kuf [..., M, n], and D: its diagonal [..., n], or blocks [G, b, b]."""
    V = triangular_solve(L, rows.Kuf)
    return V, sites._covariance_given_u(V, L, rows)


def weighted_sums(V: tf.Tensor, w: tf.Tensor, r: tf.Tensor, penalty: tf.Tensor) -> RowSums:
    """
    Compute the sums of rows with V [..., M, n], precisions w [..., n] and residuals r [..., n, P].
    """
    wr = w[..., None] * r
    return RowSums(
        A=weighted_gram(V, w),
        c=tf.matmul(V, wr),
        quadratic=tf.reduce_sum(wr * r, axis=[-2, -1]),
        log_noise=-tf.reduce_sum(tf.math.log(w), axis=-1),
        penalty=penalty,
        shared=tf.zeros([0, 0], V.dtype),
    )


@tf.custom_gradient
def weighted_gram(V: tf.Tensor, w: tf.Tensor) -> Any:
    """Compute V diag(w) V', [..., M, M], whose derivative takes one product."""

    def gradient(bar: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        bar_V = tf.matmul(bar + tf.linalg.matrix_transpose(bar), V)
        return bar_V * w[..., None, :], 0.5 * column_products(bar_V, V)

    return symmetric_product(V * w[..., None, :], V), gradient


class IndependentSites(SiteRule):
    """
    The sites and the penalty of :class:`.Powers`, one for each row, for any number of latent
    functions.
    """

    @override
    def noise(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return rows.noise + powers.noise_power * D

    @override
    def penalty(self, D: tf.Tensor, rows: Rows, powers: Powers) -> tf.Tensor:
        return tf.reduce_sum(
            powers.weight * log1p_ratio(powers.penalty_power, D / rows.noise), axis=-1
        )

    @override
    def adjoint(
        self, L: tf.Tensor, V: tf.Tensor, rows: Rows, powers: Powers, bar: RowSums
    ) -> tuple[tf.Tensor, Rows]:
        """
        Compute a chunk's V Kff_bar V' and the derivatives in the rows, faster than by a tape.

        For the sums over all rows L' L_bar = 2 (V Kff_bar V' - A_bar A) - c_bar c'.
        """
        if type(self) is not IndependentSites:
            return super().adjoint(L, V, rows, powers, bar)
        D = self._covariance_given_u(V, L, rows)
        r, w = rows.residual, 1.0 / self.noise(D, rows, powers)
        AVw = tf.matmul(bar.A, V * w[..., None, :])  # [..., M, n]
        qr = _with_trailing(bar.quadratic, 2) * r
        cV = tf.matmul(V, bar.c, transpose_a=True) + qr  # [..., n, P]
        # w times the derivative in w, [..., n].
        w_bar = column_products(AVw, V) + w * tf.reduce_sum(cV * r, axis=-1)
        v_bar = w * (_with_trailing(bar.log_noise, 1) - w_bar)
        # Derivative of the penalty in D, [..., n]
        slope = (
            _with_trailing(bar.penalty, 1) * powers.weight / (rows.noise + powers.penalty_power * D)
        )
        D_bar = powers.noise_power * v_bar + slope
        Kff_bar = tf.where(D > 0.0, rows.scale * D_bar, tf.zeros_like(D))  # D is clipped at 0
        VD = V * Kff_bar[..., None, :]
        half_V_bar = AVw + tf.matmul(0.5 * bar.c, w[..., None] * r, transpose_b=True) - VD
        summed = range(D.shape.rank - rows.scale.shape.rank)  # m is [] or one per row
        return symmetric_product(VD, V), Rows(
            Kuf=triangular_solve(L, half_V_bar, adjoint=True, factor=2.0),
            Kff=Kff_bar,
            noise=v_bar - slope * D / rows.noise,
            residual=w[..., None] * (cV + qr),
            scale=tf.reduce_sum(D * D_bar, axis=list(summed)) / rows.scale,
        )


def _with_trailing(value: tf.Tensor, count: int) -> tf.Tensor:
    """
    Add trailing dimensions to values [...] of the latent functions; a single value [] is unchanged.
    """
    return (
        value
        if value.shape.rank == 0
        else tf.reshape(value, tf.concat([tf.shape(value), [1] * count], 0))
    )


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
    solves_last: tf.Tensor  # True if S is used, []
    L: tf.Tensor
    left: tf.Tensor  # H, P or S, [..., M, M]
    c: tf.Tensor  # L^-T c_bar, but c_bar with S, [..., M, P]
    right_c: tf.Tensor  # Factor of Kuf or V in V'c_bar: L^-T c_bar with H, otherwise c_bar
    trace: tf.Tensor  # Derivative in x/m, [..., 1]
    quadratic: tf.Tensor  # Derivatives of the objective, [...]
    log_noise: tf.Tensor

    @classmethod
    def of(
        cls,
        L: tf.Tensor,
        weight: tf.Tensor,
        bar: RowSums,
        by_one_product: tf.Tensor | None = None,
        *,
        in_single: bool = False,
    ) -> Self:
        """
        Take m weight and the derivatives `bar` in the sums.

        :param by_one_product: whether derivatives are computed with H, [], or with V; None: with H.
        :param in_single: chunks may be in single precision.
        """
        trace = weight * bar.penalty[..., None]
        S = 2.0 * tf.linalg.set_diag(bar.A, tf.linalg.diag_part(bar.A) - trace)

        def solved(value: tf.Tensor) -> tf.Tensor:
            return triangular_solve(L, value, adjoint=True)

        def with_H() -> tuple[tf.Tensor, ...]:
            c = solved(bar.c)
            return solved(tf.linalg.matrix_transpose(solved(S))), c, c

        def with_V() -> tuple[tf.Tensor, ...]:
            return (solved(S), solved(bar.c), bar.c) if in_single else (S, bar.c, bar.c)

        if by_one_product is None:
            by_one_product = tf.constant(True)
            left, c, right_c = with_H()
        else:
            left, c, right_c = tf.cond(by_one_product, with_H, with_V)
        solves_last = tf.constant(False) if in_single else ~by_one_product
        return cls(
            by_one_product, solves_last, L, left, c, right_c, trace, bar.quadratic, bar.log_noise
        )

    def of_rows(self, rows: Rows) -> Rows:
        """Compute the derivatives with respect to a chunk's rows."""
        return Rows(
            *tf.cond(
                self.by_one_product,
                partial(self.from_product, rows),
                partial(self._from_solves, rows),
            )
        )

    def from_product(self, rows: Rows) -> Rows:
        """Compute the derivatives with H."""
        return self._of_rows(rows, rows.Kuf, rows.Kuf)

    def _from_solves(self, rows: Rows) -> Rows:
        """Compute the derivatives with V."""
        V = triangular_solve(self.L, rows.Kuf)  # [..., M, n]
        rows_bar = self._of_rows(rows, V, tf.cond(self.solves_last, lambda: V, lambda: rows.Kuf))
        Kuf_bar = tf.cond(
            self.solves_last,
            lambda: triangular_solve(self.L, rows_bar.Kuf, adjoint=True),
            lambda: rows_bar.Kuf,
        )
        return rows_bar._replace(Kuf=Kuf_bar)

    def _of_rows(self, rows: Rows, right: tf.Tensor, left: tf.Tensor) -> Rows:
        """Compute the derivatives from `right` and `left`, Kuf or V; without the last solve."""
        w, r = 1.0 / rows.noise, rows.residual  # [..., n], [..., n, P]
        G = tf.matmul(self.left, right)  # [..., M, n]
        cV = tf.matmul(right, self.right_c, transpose_a=True)  # [..., n, P]
        q_bar = self.quadratic[..., None, None]
        w_bar = 0.5 * column_products(G, left) + tf.reduce_sum((cV + q_bar * r) * r, axis=-1)
        return Rows(
            Kuf=G * w[..., None, :] + tf.matmul(self.c, w[..., None] * r, transpose_b=True),
            Kff=self.trace * w,
            noise=w * (self.log_noise[..., None] - w * (w_bar + self.trace * rows.Kff)),
            residual=w[..., None] * (cV + 2.0 * q_bar * r),
            scale=tf.zeros_like(rows.scale),  # added for all rows at once
        )
