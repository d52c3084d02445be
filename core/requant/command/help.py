"""The help of the command as a whole: its subcommands in groups, each with a sentence, and examples."""

from __future__ import annotations

import argparse
import shutil
import textwrap

from requant.errors import UnknownNameError, excerpt
from requant.errors.names import did_you_mean

_GROUPS = {
    "service": "Service and whole models",
    "ops": "Tensors in files",
    "integer": "Integer operations",
    "explain": "Explanations and test vectors",
    "params": "Scales, zero points and multipliers",
    "types": "Types",
    "modules": "MLIR modules",
}
"""The headings, by the groups of operations."""
_EXAMPLES = """\
  requant quantize x.npy --output-type '!quant.uniform<i8:f32, 0.02:-3>' --profile onnx -o y.npy
  requant identify requantize --input x.npy --input-type '!quant.uniform<i32:f32, 0.001>' \\
      --output-type '!quant.uniform<i8:f32, 0.25:-1>' --observed y.npy
  requant litert.SOFTMAX --help            an operator of another system
  requant checkpoint quantize MODEL MODEL-FP8 --scheme FP8_DYNAMIC
  requant serve --port 8080                then open http://127.0.0.1:8080/
"""
_INDENT = 22


class CommandParser(argparse.ArgumentParser):
    """The parser of the command line, which knows the group of each subcommand."""

    def __init__(self, **options: str) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._commands: dict[str, list[tuple[str, str]]] = {name: [] for name in _GROUPS}

    def add_to_help(self, group: str, name: str, said: str) -> None:
        """Have a subcommand in the help, in a group of operations, with what it does."""
        self._commands[group].append((name, said))

    def format_help(self) -> str:
        width = min(shutil.get_terminal_size().columns, 100)
        lines = ["usage: requant COMMAND ...", "", self.description or ""]
        for group, title in _GROUPS.items():
            lines += ["", f"{title}:"]
            for name, said in self._commands[group]:
                lines += textwrap.wrap(
                    f"  {name:<{_INDENT - 2}}{said}", width, subsequent_indent=" " * _INDENT, break_on_hyphens=False
                )
        lines += ["", "Examples:", _EXAMPLES, "`requant COMMAND --help` says more; `requant --version` the version."]
        return "\n".join([*lines, ""])

    def check_command(self, name: str) -> None:
        """Raise UnknownNameError for the name of no subcommand."""
        known = {command for listed in self._commands.values() for command, _ in listed}
        if not name.startswith("-") and "." not in name and name not in known:
            hint = did_you_mean(name, known)
            said = f" ({hint})" if hint else ""
            raise UnknownNameError(f"there is no command {excerpt(name)}{said}; `requant --help` lists all")
