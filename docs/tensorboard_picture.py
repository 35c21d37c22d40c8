"""
Take the picture of TensorBoard: `python docs/tensorboard_picture.py` writes
docs/images/tensorboard.png.

Needs headless Chromium, as docs/screenshots.py.
"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpflow
import numpy as np
from screenshots import BROWSERS  # beside this script
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

from gpflow_pep import PEPR, fit
from gpflow_pep.inducing import k_means

PICTURE = Path(__file__).parent / "images" / "tensorboard.png"
PORT = 6123


def train(folder: Path) -> None:
    """Train with three powers, each logged in a folder of its own."""
    X, y = load_diabetes(return_X_y=True)
    X, Y = (StandardScaler().fit_transform(values) for values in (X, y[:, None]))
    for alpha in (0.0, 0.5, 1.0):
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(10, 3.0))
        model = PEPR((X[:300], Y[:300]), kernel, k_means(X[:300], 30), alpha=alpha)
        logs = folder / f"alpha={alpha}"
        fit(model, max_iterations=100, tensorboard=logs, held_out=(X[300:], Y[300:]))


def main() -> None:
    """Train, serve the logs, and photograph the page of scalars."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"one of these browsers must be installed: {', '.join(BROWSERS)}")
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder) / "logs")
        serve = [sys.executable, "-m", "tensorboard.main", "--logdir", "logs"]
        command = [*serve, "--port", str(PORT)]
        with subprocess.Popen(command, cwd=folder) as server:
            while socket.socket().connect_ex(("localhost", PORT)):
                time.sleep(0.5)
            options = ["--headless", "--no-sandbox", "--virtual-time-budget=30000"]
            size = ["--hide-scrollbars", "--window-size=1366,845"]
            size += [f"--screenshot={PICTURE}"]
            page = f"http://localhost:{PORT}/?darkMode=false#scalars"
            subprocess.run([browser, *options, *size, page], check=True)
            server.terminate()


if __name__ == "__main__":
    main()
