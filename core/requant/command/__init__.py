"""The command line: `requant serve` and `requant checkpoint ...`.

Each subcommand is a module with `HELP`, `add_arguments(parser)` and `run(arguments) -> int`. What it needs beyond the
parser is imported by `run`, so that no subcommand waits for the packages of another.
"""
