"""The data of the pages: rows of jobs, and the sections of one job, read by the handles of `catalog/`."""
