"""Checks of the source tree that no published linter has."""
