"""`python -m ssmlbench` is `ssmlbench`."""

from ssmlbench.cli import main

main()
