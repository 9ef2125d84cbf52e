"""The part of the library that does not depend on a framework: shards, and the connection to the master."""
