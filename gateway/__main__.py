"""Run the `mnemogate` command with `python -m gateway`."""

from gateway.cli.main import main

main()
