"""Contracts, streams, wrappers, clocks and processes: numpy, never JAX."""
