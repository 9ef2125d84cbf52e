"""Reports of simulations: a table for the terminal, a self-contained HTML page, a PNG picture and CSV."""
