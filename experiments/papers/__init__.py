"""
The experiments of the papers: each module is a protocol, with its runs and the tables and figures
made from them.

A protocol has ``jobs(full)``, its runs, and ``show(records)``, which yields tables and figures of
the completed runs.
"""

PROTOCOLS = {
    "U1": "draws from a Gaussian process, all alphas, against the exact GP",
    "U2": "eight regression sets, all alphas",
    "U3": "six binary sets, minibatches of sites",
    "U4": "even and odd digits of MNIST",
    "U5": "inducing points move with alpha",
    "U6": "EP for a dense GP, over its hyperparameters",
    "S1": "structured bounds on Snelson's function",
    "S2": "structured bounds on kin40k",
    "S3": "structured bounds by minibatches",
    "S4": "a learned scale over alpha and M",
    "S5": "blocks of neighbors against random blocks",
    "T1": "a stream of a toy function, in order and shuffled",
    "T2": "alpha on a stream of a pseudo-periodic series",
    "T3": "streams of time series against windows and minibatches",
    "T4": "streams of terrain against windows and minibatches",
    "T5": "memory against accuracy on terrain",
    "T6": "a stream of labels, in order and shuffled",
    "T7": "errors by the order of arrival",
    "T8": "streams are exact; hyperparameters along a stream",
    "M1": "eight sets of several classes, all methods",
    "M2": "location of inducing points, three classes",
    "M3": "several classes, scores against seconds on satellite",
    "M4": "several classes, scores against seconds on MNIST",
    "M5": "several classes, scores against seconds on flights",
    "M6": "active learning",
    "Q1": "EP and quantile propagation of a dense GP",
    "A1": "the alpha that select_alpha chooses",
    "A2": "an alpha for each cluster of rows",
    "A3": "choices of initial inducing points",
}
"""Names of the modules, in capitals, and titles."""
