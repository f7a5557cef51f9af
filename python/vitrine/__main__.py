"""python -m vitrine: the command line of the package's program."""

import os
import sys

from .program import program_path

os.execv(program_path(), ["vitrine", *sys.argv[1:]])
