"""`python -m flatfed` is `flatfed`."""

from flatfed.cli import main

main(prog_name="flatfed")
