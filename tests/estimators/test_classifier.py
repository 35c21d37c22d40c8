"""SparseGPClassifier against the model built by hand; labels of any type."""

import numpy as np
import pandas as pd
import pytest
from default_parts import default_parts
from gpflow.likelihoods import Bernoulli, Gaussian, Softmax
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from gpflow_pep import MultiClassRobustMax, PEPClassifier, StreamingPEP, fit, weak_priors
from gpflow_pep.estimators import SparseGPClassifier
from gpflow_pep.estimators.base import SparseGPEstimator
from gpflow_pep.likelihoods import Probit

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Sites converge to 1e-6 of a standard deviation, from the same start in the same steps.
SAME = {"rtol": 1e-7, "atol": 1e-9}


@pytest.fixture(scope="module")
def labels(y):
    return np.digitize(y, [95.0, 110.0])


@pytest.mark.parametrize("num_classes", [2, 3])
def test_probabilities_are_those_of_the_model(X, labels, num_classes):
    kept = labels < num_classes
    rows = X[kept]
    names = np.array(["low", "middle", "top"])[labels[kept]]
    estimator = SparseGPClassifier(
        alpha=0.5, n_inducing=6, max_iterations=3, calibrate=False, random_state=0
    ).fit(rows, names)
    kernel, Z = default_parts(rows)
    likelihood = Probit() if num_classes == 2 else Softmax(3)
    Y = labels[kept, None].astype(float)
    model = PEPClassifier((rows, Y), kernel, likelihood, Z, alpha=0.5, max_jitter=1e-3)
    weak_priors(model)
    fit(model, max_iterations=3)
    mean, _ = model.predict_y(X)
    expected = np.concatenate([1.0 - mean, mean], axis=1) if num_classes == 2 else mean.numpy()
    found = estimator.predict_proba(X)
    assert_allclose(found, expected, **SAME)
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-14)
    assert estimator.classes_.tolist() == ["low", "middle", "top"][:num_classes]
    assert_array_equal(estimator.predict(X), estimator.classes_[expected.argmax(axis=1)])
    evidence = model.sites_status.log_evidence
    assert_allclose(estimator.log_marginal_likelihood_value_, evidence, rtol=1e-9)
    assert estimator.score(rows, names) > 0.6


@pytest.mark.parametrize(("of_rarest", "first_rows"), [(20, 1000), (10, 2000), (1, 10_000)])
def test_first_rows_depend_on_the_rarest_class(monkeypatch, of_rarest, first_rows):
    given = []

    def train(estimator, model, options):
        given.append(options.first_rows)
        raise KeyboardInterrupt

    monkeypatch.setattr(SparseGPEstimator, "_trained", train)
    rows = np.linspace(0.0, 1.0, 200)[:, None]
    with pytest.raises(KeyboardInterrupt):
        SparseGPClassifier(n_inducing=3).fit(rows, np.arange(200) < of_rarest)
    assert given == [first_rows]


@pytest.fixture(scope="module")
def small():
    return SparseGPClassifier(n_inducing=6, optimizer=None, random_state=0)


@pytest.mark.parametrize(
    ("kind", "classes"),
    [
        (lambda positive: positive, [False, True]),
        (lambda positive: np.where(positive, 1, -1), [-1, 1]),
        (lambda positive: np.where(positive, "yes", "no").astype(object), ["no", "yes"]),
        (lambda positive: np.where(positive, "yes", "no").tolist(), ["no", "yes"]),
        (lambda positive: pd.Series(positive, dtype="boolean"), [False, True]),
        (lambda positive: pd.Series(positive.astype(int) + 3, dtype="Int64"), [3, 4]),
        (
            lambda positive: pd.Series(np.where(positive, "yes", "no"), dtype="category"),
            ["no", "yes"],
        ),
    ],
)
def test_labels_of_any_type(X, labels, small, kind, classes):
    positive = labels > 0
    given = kind(positive)
    estimator = small.fit(X, given)
    assert estimator.classes_.tolist() == classes and type(estimator.classes_.tolist()[0]) is type(
        classes[0]
    )
    predicted = estimator.predict(X)
    assert predicted.dtype == estimator.classes_.dtype
    score = np.mean((predicted == classes[1]) == positive)
    assert_allclose(estimator.score(X, given), score, rtol=1e-12)
    assert score > 0.7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones(60), r"y must have labels of two classes or more, got 1 class: \[1.0\]"),
        (np.linspace(0.0, 1.0, 60), "Unknown label type: continuous"),
        (
            pd.Series([None, *[True, False] * 29, True], dtype="boolean"),
            "<NA> in row 0|contains NaN",
        ),
        ([None, *["a", "b"] * 29, "a"], "y must hold labels of one type, .* got None in row 0"),
        ([np.nan, *["a", "b"] * 29, "a"], "got nan in row 0"),
        ([1, "a"] * 30, "got 'a' in row 1"),
        ([b"a", b"b"] * 30, "got b'a' in row 0"),
        (np.array([b"a", b"b"] * 30), r"got an array of dtype [|]S1"),
        ([[1], [0, 1]] * 30, r"got \[1\] in row 0"),
        (pd.Series([pd.NA, *["a", "b"] * 29, "a"], dtype="string"), "got <NA> in row 0"),
        (pd.Series([None, *["a", "b"] * 29, "a"], dtype="category"), "got nan in row 0"),
        (np.array(["2020-01-01", "2020-01-02"] * 30, "M8[D]"), "got an array of dtype datetime"),
    ],
)
def test_rejects_invalid_labels(X, small, given, message):
    with refused(message):
        small.fit(X, given)
    if message.startswith("got"):
        with refused(f"classes must hold labels .*{message}"):
            small.partial_fit(X, ["a", "b"] * 30, classes=given)


def test_a_given_likelihood_is_copied(X, labels):
    """The likelihood is copied, and rejected if it is not a likelihood of labels."""
    likelihood = Softmax(3)
    options = {"n_inducing": 6, "optimizer": None, "random_state": 0}
    estimator = SparseGPClassifier(likelihood=likelihood, **options).fit(X, labels)
    assert isinstance(estimator.model_.likelihood, Softmax)
    assert estimator.model_.likelihood is not likelihood
    assert_allclose(estimator.predict_proba(X).sum(axis=1), 1.0, rtol=1e-14)
    assert estimator.score(X, labels) > 0.6
    with refused(r"likelihood must be one of class labels .*, got Gaussian"):
        SparseGPClassifier(likelihood=Gaussian()).fit(X, labels)


@pytest.mark.parametrize(
    ("likelihood", "count", "found"),
    [
        (MultiClassRobustMax(4), 3, "MultiClassRobustMax with 4"),
        (Softmax(3), 2, "Softmax with 3"),
        (Bernoulli(), 3, "Bernoulli with 2"),
        (Probit(), 3, "Probit with 2"),
    ],
)
def test_rejects_likelihoods_of_another_number_of_classes(X, labels, likelihood, count, found):
    """They would give probabilities of too many or too few classes."""
    estimator = SparseGPClassifier(likelihood=likelihood, n_inducing=6, optimizer=None)
    labels = np.minimum(labels, count - 1)
    match = f"likelihood must have {count} classes, as classes_ has, got {found}"
    with refused(match):
        estimator.fit(X, labels)
    with refused(match):
        estimator.partial_fit(X, labels > 0, classes=range(count))


def test_batches(X, labels):
    """The first call names all classes; a batch may lack some."""
    estimator = SparseGPClassifier(n_inducing=8, optimizer=None, random_state=0)
    with refused("classes must be given at the first call of partial_fit"):
        estimator.partial_fit(X, labels)
    for classes in ([0], "hi"):
        with refused(r"classes must be two labels or more, got 1 class: \["):
            estimator.partial_fit(X, labels, classes=classes)
    order = np.argsort(labels, kind="stable")
    for rows in (order[::2], order[1::2]):
        estimator.partial_fit(X[rows], labels[rows] > 0, classes=[True, False])
    assert isinstance(estimator.model_, StreamingPEP)
    assert estimator.classes_.tolist() == [False, True]
    assert estimator.score(X, labels > 0) > 0.8
    before = estimator.predict_proba(X)
    with refused(r"y must have labels of classes_, \[False, True\], got 2"):
        estimator.partial_fit(X, labels)
    with refused(r"classes must stay \[False, True\], got \[0, 2\]"):
        estimator.partial_fit(X, labels > 0, classes=[0, 2])
    # The third call compiles a graph, which may round differently.
    assert_allclose(estimator.predict_proba(X), before, rtol=1e-12)
