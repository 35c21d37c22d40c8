"""Files: arrays written atomically, the identity of a training run, and the state of a stream."""
