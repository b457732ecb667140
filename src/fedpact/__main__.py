"""`python -m fedpact`."""

from fedpact.cli import main

main()
