"""Saving: atomic files of arrays, the identity of a training run, and the state of a stream."""
