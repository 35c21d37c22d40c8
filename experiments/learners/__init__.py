"""What learns from data that arrive in batches: the streaming models, and those that they are compared with."""
