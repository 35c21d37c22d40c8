"""
Campaigns: thousands of generated problems that look for wrong numbers, failures and sites that do
not converge.

Run them from the clone with ``PYTHONPATH=tests``, as `make campaign` does.
"""
