"""
Rare classes
============

Probabilities need no correction for a rare class: fit all rows as they are, then choose
the threshold that fits the cost of each kind of error. Here a missed case costs ten
times as much as a false alarm.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import PrecisionRecallDisplay, confusion_matrix
from sklearn.model_selection import FixedThresholdClassifier, train_test_split

from gpflow_pep.estimators import SparseGPClassifier

X, y = make_classification(
    800, 5, n_redundant=0, weights=[0.93], class_sep=1.2, random_state=3
)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, stratify=y, random_state=0
)
model = SparseGPClassifier(n_inducing=30, random_state=0).fit(X_train, y_train)


def cost(classifier):
    """Return missed cases times ten plus false alarms."""
    (_, alarms), (missed, _) = confusion_matrix(y_test, classifier.predict(X_test))
    return 10 * missed + alarms


# %%
# Act if the expected cost of not acting is larger: p · 10 > (1 - p) · 1, that is p >
# 1/11.

decide = FixedThresholdClassifier(FrozenEstimator(model), threshold=1.0 / 11.0)
decide.fit(X_train, y_train)
print(f"cost at the threshold 1/2: {cost(model)}, at 1/11: {cost(decide)}")
assert cost(decide) < cost(model)

# %%
# Precision and recall at all thresholds.

_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
PrecisionRecallDisplay.from_estimator(
    model, X_test, y_test, ax=axes, plot_chance_level=True, name="SparseGPClassifier"
)
plt.show()
