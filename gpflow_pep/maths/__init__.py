"""
Numerical building blocks: checked linear algebra, log Φ, and batched one-dimensional integrals.
"""
