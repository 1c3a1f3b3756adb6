"""What every program here needs: rounds, the promises that are marked, and what a check finds."""
import os
import subprocess
import sys

ROUNDS = 6


def mark(text):
    with open(os.environ["ORDO_MARK"], "w") as marks:
        marks.write(text + "\n")


def acked():
    with open(os.environ["ORDO_ACKED"]) as lines:
        return [int(line.split()[1]) for line in lines if line.strip()]


def fail(text):
    print(text)
    sys.exit(1)


def in_order(found, promised=True):
    """Numbers from 1 without gaps, those included that were promised."""
    if found != list(range(1, len(found) + 1)):
        fail(f"gaps: {found}")
    last = max(acked(), default=0)
    if promised and len(found) < last:
        fail(f"{last} was committed, {found} are there")


def quiet(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout
