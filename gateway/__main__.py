"""`python -m gateway`: the command without its entry point."""

from gateway.cli.main import main

main()
