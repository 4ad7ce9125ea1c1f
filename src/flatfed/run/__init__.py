"""A spec, run: what it leaves on the disk, how it goes on, and who watches it."""

from flatfed.run.run import run

__all__ = ["run"]
