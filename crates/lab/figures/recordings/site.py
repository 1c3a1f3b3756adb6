"""The files of a web site with SPECweb's classes: site.py TOP DIRECTORIES."""

import pathlib
import sys

top, directories = pathlib.Path(sys.argv[1]), int(sys.argv[2])
for number in range(directories):
    directory = top / f"dir{number:05}"
    directory.mkdir()
    for kind, smallest in enumerate([102, 1024, 10_240, 102_400]):
        for file in range(9):
            (directory / f"class{kind}_{file}").write_bytes(bytes(smallest * (file + 1)))
