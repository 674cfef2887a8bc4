"""The command line: `memgate`. Modules here import nothing heavy at their top, so that `--help` is instant."""
