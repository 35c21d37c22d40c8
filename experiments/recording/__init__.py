"""Records of runs: experiments, scalars in the course of training, predictions and scores."""
