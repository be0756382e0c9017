"""Tests of the run loops, on doubles."""
