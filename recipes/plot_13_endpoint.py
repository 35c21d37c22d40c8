"""
A web endpoint for single rows
==============================

A pickled estimator answers requests by HTTP. After the first predictions, which compile
a function, a row takes about a millisecond.
"""

import json
import pickle
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from gpflow_pep.estimators import SparseGPRegressor

X, y = load_diabetes(return_X_y=True)
trained = SparseGPRegressor(n_inducing=30, train_inducing=False, random_state=0)
model = pickle.loads(pickle.dumps(trained.fit(X, y)))
for _ in range(3):
    model.predict(X[:1], return_std=True)  # compiles

# %%
# Threads may predict with one model at the same time. Unpickle only files that you
# trust.


class Handler(BaseHTTPRequestHandler):
    """Answer a row, a list of numbers, by mean and standard deviation."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # send the answer at once

    def do_POST(self):
        """Predict."""
        row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        mean, std = model.predict([row], return_std=True)
        answer = json.dumps({"mean": mean[0], "std": std[0]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        """Write no log."""


server = ThreadingHTTPServer(("localhost", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()

# %%
# Ask for a hundred rows, one after another.

connection = HTTPConnection(*server.server_address)
milliseconds = []
for row in X[:100]:
    start = time.perf_counter()
    connection.request("POST", "/", json.dumps(row.tolist()))
    answer = json.loads(connection.getresponse().read())
    milliseconds.append(1000.0 * (time.perf_counter() - start))
connection.close()
server.shutdown()
server.server_close()
print(answer, f"median {np.median(milliseconds):.1f} ms")
assert np.isclose(answer["mean"], model.predict(X[99:100])[0])

_, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.hist(milliseconds, bins=30)
axes.set(xlabel="milliseconds from request to answer", ylabel="requests")
plt.show()
