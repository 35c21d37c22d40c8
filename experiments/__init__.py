"""
Sacred experiments on `gpflow_pep`, each run as ``python -m experiments.<name>``; results go to
``runs/``.
"""

import os

# TensorFlow reads this when it is imported: notices are hidden, errors are not.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
