"""Learners from data that arrive in batches: the streaming models and their peers."""
