"""Files that are written whole, the identity of a run, and the state of a stream."""
