"""The reference pages of the documentation (docs/reference), written from the code."""
