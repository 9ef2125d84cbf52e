"""The documentation as a web site: links to the source tree, and a check of what was built."""
