"""Contracts, driver, streams, wrappers, clocks and checkpoints: numpy, never JAX."""
