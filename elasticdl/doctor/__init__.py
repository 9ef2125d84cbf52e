"""`elasticdl doctor`: finds out what keeps jobs from running here, and how to put it right.

A check looks at one thing and returns findings; it changes nothing. What it reads is a parameter wherever a test
cannot make the machine fail. `checkup.py` runs all of them.
"""
