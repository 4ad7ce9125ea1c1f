"""The command line: a thin layer over what Python can do.

Commands import what they need when they run: `flatfed --help` needs none of it.
"""

from flatfed.cli import catalogue, data, run  # their commands join the group
from flatfed.cli.group import main, setting

__all__ = ["catalogue", "data", "main", "run", "setting"]
