"""Readers that address records by their index, as shards do."""
