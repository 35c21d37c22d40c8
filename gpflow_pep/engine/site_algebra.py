"""The Gaussian sites of the collapsed methods, and the contribution of a chunk of rows to their sums."""

from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from .rows import Rows


class Powers(NamedTuple):
    """
    The parameters that distinguish the collapsed methods: three numbers, each [] or one per block [B].

    With d the prior variance of f given u, s the noise and m the scale of the structured conditional (M = m I):

        site noise  v = s + noise_power m d,
        penalty     sum weight log(1 + penalty_power m d / s) / (penalty_power m)

    (log det for blocks; a power of 0 is the limit). They are not differentiated; the scale m is.

    | method          | noise_power | penalty_power | weight        |
    |-----------------|-------------|---------------|---------------|
    | SGPR            | 0           | 0             | 1/2           |
    | PEP, T-PEP      | alpha       | alpha         | (1 - alpha)/2 |
    | T-SGPR, BT-SGPR | 0           | 1             | 1/2           |
    """

    noise_power: tf.Tensor
    penalty_power: tf.Tensor
    weight: tf.Tensor

    @classmethod
    def of_pep(cls, alpha: tf.Tensor) -> "Powers":
        """Return those of power EP."""
        return cls(noise_power=alpha, penalty_power=alpha, weight=0.5 * (1.0 - alpha))


class EvidenceTerms(NamedTuple):
    """
    What the evidence needs of the rows besides :class:`SiteSums`: V = L^-1 Kuf, site noise v, residual r.

    Leading dimensions [...] are those of Kuu: several latent functions at once.
    """

    quadratic: tf.Tensor
    """r' diag(1/v) r summed over outputs, [...]."""
    log_noise: tf.Tensor
    """log det of the site noise, [...]."""
    penalty: tf.Tensor
    """The penalty sum of :class:`Powers`, [...]; of a shared block, the sum of S^-1/2 D_b S^-1/2, [b, b]."""


class ChunkSums(NamedTuple):
    """A chunk's part of :class:`SiteSums` and :class:`EvidenceTerms`, or the derivatives of the objective in them."""

    A: tf.Tensor
    c: tf.Tensor
    quadratic: tf.Tensor
    log_noise: tf.Tensor
    penalty: tf.Tensor


class ChunkAdjoint(NamedTuple):
    """What a chunk adds to the derivatives of the objective."""

    rows: Rows
    """With respect to the chunk's rows."""
    VDV: tf.Tensor
    """V D_bar V' with D_bar the derivative in D = Kff - V'V: the part of L's derivative that A and c do not give."""
    scale: tf.Tensor
    """With respect to the scale m, [...]."""


class LeaveOneOutTerms(NamedTuple):
    """
    The contribution of each row of a chunk to the sums, to be removed when the row is left out.

    A is less by the sum of e e'/v and c by that of e r/v, one term for each row left out alone.
    """

    V: tf.Tensor  # L^-1 Kuf, [M, n]
    conditional_variance: tf.Tensor  # Variance of f given u, [n]
    direction: tf.Tensor  # e, [M, n]
    noise: tf.Tensor  # v, [n]
    residual: tf.Tensor  # r, [n, P]


class SiteAlgebra(Protocol):
    """The algebra of one kind of site, chunk by chunk: sums, and their adjoints written out."""

    def zero(self, L: tf.Tensor, num_outputs: int) -> ChunkSums:
        """Sums over no rows; L [..., M, M]."""
        scalar = tf.zeros_like(L[..., 0, 0])
        c = tf.zeros(tf.concat([tf.shape(L)[:-1], [num_outputs]], 0), L.dtype)
        return ChunkSums(A=tf.zeros_like(L), c=c, quadratic=scalar, log_noise=scalar, penalty=scalar)

    def quantities(self, L: tf.Tensor, rows: Rows, powers: Powers, scale: tf.Tensor) -> Any:
        """Compute what forward and backward pass need of a chunk: V = L^-1 Kuf, D = Kff - V'V and the site noise."""

    def forward(self, quantities: Any, rows: Rows, powers: Powers, scale: tf.Tensor) -> ChunkSums:
        """A chunk's sums."""

    def adjoint(
        self, L: tf.Tensor, quantities: Any, rows: Rows, powers: Powers, scale: tf.Tensor, bar: ChunkSums
    ) -> ChunkAdjoint:
        """A chunk's part of the derivatives, given those with respect to the sums."""

    def leave_one_out_terms(self, L: tf.Tensor, rows: Rows, powers: Powers, scale: tf.Tensor) -> LeaveOneOutTerms:
        """Compute what leaving out each single row of a chunk removes from the sums."""
