"""Configurations in the old style: layers as descriptions, data providers, and the program that is built of both."""
