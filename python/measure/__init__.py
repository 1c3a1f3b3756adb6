"""Measures fleets and the recorder in parts, for docs/results/fleet.md: `make bench-fleet`.

Each section is measured by itself and kept as JSON, and the page is written from all kept sections. So a recording of an
hour can be made on a busy machine, and times on a quiet one. Each section says which commit and load it was measured at.

- ``sweep``: one worker, two workers and Spark on the tasks of a sweep.
- ``recorder``: the cost of recording in parts.
- ``long``: memory over an hour of recording, and of the analysis of more than 10 GB.
- ``estimate``: what 10,000 hosts cost for a day.
- ``proof``: a great sweep and many traces on Spark, an executor killed each time, against one machine.
"""
