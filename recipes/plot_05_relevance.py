"""
Which columns matter?
=====================

Two answers: the lengthscales of the kernel, and scikit-learn's permutation importance.
The function here depends on the first five of ten columns.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.inspection import permutation_importance
from sklearn.model_selection import train_test_split

from gpflow_pep.estimators import SparseGPRegressor

X, y = make_friedman1(400, noise=1.0, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = SparseGPRegressor(n_inducing=50, train_inducing=False, random_state=0)
model.fit(X_train, y_train)
print(f"R² of unseen rows: {model.score(X_test, y_test):.2f}")

# %%
# The default kernel is a Matern 5/2 with a lengthscale for each column, plus a linear
# trend. A short lengthscale, relative to the spread of the column, means that the
# function bends along the column. A long one means that it hardly changes, or changes
# linearly.

matern, *trend = model.kernel_.kernels
sensitivity = X_train.std(axis=0) / matern.lengthscales.numpy()

# %%
# Permutation importance says how much a score falls if one column of the unseen rows is
# shuffled.

importance = permutation_importance(
    model, X_test, y_test, n_repeats=5, random_state=0
).importances_mean
assert set(np.argsort(importance)[-5:]) == set(range(5))

_, (left, right) = plt.subplots(
    1, 2, figsize=(5, 3.5), layout="constrained", sharey=True
)
left.barh(range(10), sensitivity)
left.set(xlabel="spread / lengthscale", ylabel="column", yticks=range(10))
left.invert_yaxis()
right.barh(range(10), importance)
right.set(xlabel="loss of R² if shuffled")
plt.show()
