"""What every training program needs, whatever its framework: shards, and the connection to the master."""
