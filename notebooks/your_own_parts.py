# %% [markdown]
# # Your own likelihood, kernel and site rule
#
# Add your own parts from outside the package, in the order of effort, and check them. For readers who have written a
# GPflow kernel or likelihood. Runs in half a minute, without a network.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.config import default_float
from scipy.integrate import quad

from gpflow_pep import PEP, PEPR, fit
from gpflow_pep.engine import Powers, SiteRule
from gpflow_pep.models.collapsed import CollapsedRegression
from gpflow_pep.plotting import POWERS, PREDICTION, ROWS, draw_inducing_points
from gpflow_pep.tilted import KL, Cavity, Observations, Tilted, TiltedRule, tilted_rule

plt.rcParams["figure.dpi"] = 150
rng = np.random.default_rng(8)
X = np.sort(rng.uniform(0.05, 10.0, (150, 1)), axis=0)  # [N, D]
walk = np.cumsum(
    rng.standard_normal(X.shape) * np.sqrt(np.diff(X, axis=0, prepend=0.0)), axis=0
)  # a random walk in time
Y = walk + rng.laplace(scale=0.3, size=X.shape)
Z = np.linspace(0.3, 10.0, 30)[:, None]  # [M, D]

# %% [markdown]
# ## A likelihood
#
# `PEP` takes any `gpflow.likelihoods.ScalarLikelihood` whose log density is smooth in f, and integrates its tilted
# distributions by quadrature. Here the noise has a logistic distribution, with tails like exp(-|e|/b).


# %%
class Logistic(gpflow.likelihoods.ScalarLikelihood):
    """y = f + e, p(e) = 1/(4b cosh²(e/2b))."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = gpflow.Parameter(scale, transform=gpflow.utilities.positive())  # b

    def _scalar_log_prob(self, X, F, Y):
        e = (Y - F) / self.scale
        # no overflow, however large e is
        return -tf.math.softplus(e) - tf.math.softplus(-e) - tf.math.log(self.scale)

    def _conditional_mean(self, X, F):
        return tf.identity(F)

    def _conditional_variance(self, X, F):
        return tf.fill(tf.shape(F), np.pi**2 / 3.0 * tf.square(self.scale))


# %% [markdown]
# ## A kernel
#
# A GPflow kernel needs only `K` and `K_diag`; TensorFlow differentiates it. This is Brownian motion.


# %%
class Brownian(gpflow.kernels.Kernel):
    """k(x, x') = s min(x, x'), for x > 0."""

    def __init__(self):
        super().__init__()
        # s
        self.variance = gpflow.Parameter(1.0, transform=gpflow.utilities.positive())

    def K(self, X, X2=None):
        # [N, N2]
        return self.variance * tf.minimum(X, tf.transpose(X if X2 is None else X2))

    def K_diag(self, X):
        return self.variance * X[:, 0]  # [N]


model = PEP((X, Y), Brownian(), Logistic(), Z, alpha=0.5)
gpflow.set_trainable(model.inducing_variable, False)
result = fit(model, max_iterations=20)
print(result)
assert result.sites.converged

# %% [markdown]
# ## The rule of a likelihood, in closed form
#
# PEP needs the moments of tilted distributions N(f; m, v) p(y|f)^α. If they are known in closed form, a rule computes
# them. The registry `tilted_rule` finds the rule by the classes of likelihood and projection. A rule is faster than
# quadrature, and necessary if log p(y|f) has a kink, since quadrature uses its derivatives. Laplace noise has a kink at
# f = y, which splits the integral into two Gaussian integrals. With e = m - y, a = α/b, s = √v:
#
# Z± = exp(∓a e + a²v/2) Φ((±e - a v)/s),   log Z = log(Z₊ + Z₋) - α log 2b.
#
# A rule returns log Z/α, its first two derivatives in m, and the ratio of variances 1 + α v d2. At α = 0 these are
# E[log p(y|f)] and its derivatives.

# %%
normal = tfp.distributions.Normal(np.float64(0.0), np.float64(1.0))


class Laplace(gpflow.likelihoods.ScalarLikelihood):
    """y = f + e, p(e) = exp(-|e|/b)/(2b)."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = gpflow.Parameter(scale, transform=gpflow.utilities.positive())  # b

    def _scalar_log_prob(self, X, F, Y):
        return -tf.abs(Y - F) / self.scale - tf.math.log(2.0 * self.scale)

    def _conditional_mean(self, X, F):
        return tf.identity(F)

    def _conditional_variance(self, X, F):
        return tf.fill(tf.shape(F), 2.0 * tf.square(self.scale))


class LaplaceTilting(TiltedRule):
    def __init__(self, likelihood):
        self._likelihood = likelihood

    def moments(self, cavity, observations, alpha, negligible=0.0):
        b = tf.convert_to_tensor(self._likelihood.scale)
        v, e = cavity.variance, cavity.mean - observations.Y[:, 0]  # [n]
        s, a = tf.sqrt(v), alpha / b
        above = -a * e + 0.5 * a**2 * v + normal.log_cdf((e - a * v) / s)  # log Z+
        below = a * e + 0.5 * a**2 * v + normal.log_cdf((-e - a * v) / s)  # log Z-
        total = tf.math.reduce_logsumexp([above, below], axis=0)
        t = tf.tanh(0.5 * (above - below))  # (Z+ - Z-)/(Z+ + Z-)
        at_y = tf.exp(normal.log_prob(e / s) - total) / s  # N(y; m, v)/(Z+ + Z-)
        distance = e * t + 2.0 * v * at_y  # E|f - y|, for alpha = 0
        is_zero = tf.equal(alpha, 0.0)
        power = tf.where(is_zero, tf.ones_like(alpha), alpha)
        log_partition = tf.where(is_zero, -distance / b, total / power) - tf.math.log(
            2.0 * b
        )
        d2 = (a * (1.0 - t**2) - 2.0 * at_y) / b
        return Tilted(log_partition, -t / b, d2, 1.0 + alpha * v * d2)


@tilted_rule.register(Laplace, KL)
def laplace(likelihood, projection):
    return LaplaceTilting(likelihood)


# %% [markdown]
# Check a rule against a numerical integral, for each alpha, near y and far from it:

# %%
means, variances, b, y = (
    np.array([0.0, 0.3, -1.0, 4.0]),
    np.array([0.1, 1.0, 0.5, 2.0]),
    0.3,
    0.2,
)
cavity = Cavity(tf.constant(means), tf.constant(variances))
rule = tilted_rule(Laplace(b), KL())
for alpha in (0.0, 0.5, 1.0):
    moments = rule.moments(
        cavity, Observations(X[:4], np.full((4, 1), y)), tf.constant(alpha, tf.float64)
    )
    for row, (mean, variance) in enumerate(zip(means, variances, strict=True)):

        def expectation(function, mean=mean, variance=variance):
            """Expectation under the cavity, by quadrature with a break at the kink."""

            def integrand(f):
                return (
                    function(f)
                    * np.exp(-0.5 * (f - mean) ** 2 / variance)
                    / np.sqrt(2.0 * np.pi * variance)
                )

            return quad(
                integrand, mean - 12.0, mean + 12.0, points=[y], epsabs=1e-12, limit=200
            )[0]

        def log_density(f):
            return -abs(y - f) / b - np.log(2.0 * b)

        if alpha == 0.0:
            expected = expectation(log_density)
            slope = expectation(
                lambda f, mean=mean, variance=variance: (
                    log_density(f) * (f - mean) / variance
                )
            )
        else:
            Z_alpha = expectation(lambda f, alpha=alpha: np.exp(alpha * log_density(f)))
            expected = np.log(Z_alpha) / alpha
            moment = (
                expectation(lambda f, alpha=alpha: f * np.exp(alpha * log_density(f)))
                / Z_alpha
            )
            slope = (moment - mean) / (alpha * variance)
            second = (
                expectation(
                    lambda f, alpha=alpha: f**2 * np.exp(alpha * log_density(f))
                )
                / Z_alpha
            )
            np.testing.assert_allclose(
                moments.variance_ratio[row], (second - moment**2) / variance, rtol=1e-6
            )
        np.testing.assert_allclose(moments.log_partition[row], expected, rtol=1e-8)
        np.testing.assert_allclose(moments.d1[row], slope, rtol=1e-6)
print("The rule agrees with the integrals.")

# %% [markdown]
# **Figure:** the same data, a few of them made outliers (circles). With Laplace noise the mean (blue) stays with the
# true walk (dotted); with Gaussian noise (orange) it is pulled towards the circles.

# %%
spoiled = Y.copy()
outliers = rng.choice(len(X), 8, replace=False)
spoiled[outliers] += 6.0
gaussian = PEPR((X, spoiled), Brownian(), Z, alpha=0.5)
robust = PEP((X, spoiled), Brownian(), Laplace(), Z, alpha=0.5)
for model in (robust, gaussian):
    gpflow.set_trainable(model.inducing_variable, False)
fig, ax = plt.subplots(figsize=(8, 3))
errors = {}
for name, model, style in (
    ("Laplace noise", robust, "-"),
    ("Gaussian noise", gaussian, "--"),
):
    result = fit(model, max_iterations=30)
    mean = model.predict_f(X)[0].numpy()
    errors[name] = float(np.sqrt(np.mean((mean - walk) ** 2)))
    ax.plot(X, mean, style, color=PREDICTION, label=name)
ax.plot(X, walk, "k:", lw=1, label="walk")
ax.plot(X, spoiled, ".", ms=3, color=ROWS)
ax.plot(X[outliers], spoiled[outliers], "o", mfc="none", color=ROWS)
ax.set(xlabel="x", ylabel="y")
ax.legend(fontsize=8)
fig.tight_layout()
print("RMSE to the walk:", {name: round(error, 3) for name, error in errors.items()})
assert errors["Laplace noise"] < errors["Gaussian noise"]

# %% [markdown]
# ## The sites of a regression model
#
# The collapsed models with Gaussian noise are defined by their sites: FITC has the site noise v = σ² + d, DTC v = σ². A
# model with v = σ² + p d and a penalty w/q Σ log(1 + q d/σ²) is described by `Powers(p, q, w)`, in one method; for DTC
# all three are zero. Any other rule of the sites is a `SiteRule` with the site noise of a chunk of rows; derivatives
# follow by automatic differentiation, chunk by chunk, so that memory does not grow with N. Here v = σ² exp(d/σ²).


# %%
class DTC(CollapsedRegression):
    """log N(y; m, Qff + σ²I)."""

    def site_powers(self):
        zero = tf.zeros([], default_float())
        return Powers(noise_power=zero, penalty_power=zero, weight=zero)


class ExponentialSites(SiteRule):
    """v = s exp(d/s), with s the likelihood's noise."""

    def noise(self, D, rows, powers):
        return rows.noise * tf.exp(D / rows.noise)  # [n]


class ExponentialNoise(DTC):
    """log N(y; m, Qff + diag(s exp(d/s)))."""

    def site_rule(self):
        return ExponentialSites()


# %% [markdown]
# Check the objective against its dense formula, and the derivatives against the formula's.

# %%
kernel = gpflow.kernels.SquaredExponential(lengthscales=1.0)
few = np.linspace(0.5, 9.5, 6)[:, None]
model = ExponentialNoise((X, Y), kernel, few, noise_variance=0.05)
jitter = gpflow.config.default_jitter() * np.eye(len(few))


def site_noise():
    """Qff [N, N] and v [N]."""
    V = tf.linalg.triangular_solve(
        tf.linalg.cholesky(kernel(few) + jitter), kernel(few, X)
    )
    Q, noise = tf.matmul(V, V, transpose_a=True), model.likelihood.variance
    return Q, noise * tf.exp(
        (kernel(X, full_cov=False) - tf.linalg.diag_part(Q)) / noise
    )


def dense():
    Q, v = site_noise()
    L = tf.linalg.cholesky(Q + tf.linalg.diag(v))
    return -gpflow.logdensities.multivariate_normal(Y, tf.zeros_like(Y), L)[0]


parameters = [*kernel.trainable_variables, *model.likelihood.trainable_variables]
found = []
for loss in (model.training_loss, dense):
    with tf.GradientTape() as tape:
        value = loss()
    found.append(
        [float(value), *(float(part) for part in tape.gradient(value, parameters))]
    )
    print(f"{loss.__name__:14}", np.round(found[-1], 6))
np.testing.assert_allclose(*found, rtol=1e-6)

# %% [markdown]
# The base class provides predictions, leave-one-out, `fit`, files and workers, a second base class provides streams
# (`CONTRIBUTING.md`).
#
# **Figure:** the noise of a site against x, with six inducing points (triangles). In DTC it is the same for all rows.
# FITC adds the variance that the inducing points do not explain. The exponential rule gives rows halfway between two
# points almost no weight.

# %%
Q, v = site_noise()
d = np.maximum(kernel(X, full_cov=False) - tf.linalg.diag_part(Q), 0.0)
fig, ax = plt.subplots(figsize=(7, 2.8))
for values, color, label in zip(
    (np.full(len(X), 0.05), 0.05 + d, v),
    POWERS,
    ("DTC", "FITC", "exponential"),
    strict=True,
):
    ax.plot(X, values, color=color, label=label)
draw_inducing_points(ax, few)
ax.set(yscale="log", xlabel="x", ylabel="site noise", ylim=(0.03, 60.0))
ax.legend(fontsize=8, loc="upper right")
assert np.max(v) > 10.0 * np.max(0.05 + d)
fig.tight_layout()
result = fit(model, max_iterations=50)
print(result)
assert model.predict_y(X)[0].shape == (150, 1)
