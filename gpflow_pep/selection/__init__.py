"""Choose alpha and the number of inducing points."""
