"""Campaigns: thousands of generated problems that look for wrong numbers, failures and sites that do not converge."""
