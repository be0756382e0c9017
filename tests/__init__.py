"""Tests, one folder per package of the project; doubles.py holds what they share."""
