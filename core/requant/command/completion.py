"""Print a script that completes `requant` in a shell: subcommands, options and the names that they take; else files.

Write it where the shell looks for it (docs/command_line.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from shlex import quote
from typing import TYPE_CHECKING

from requant.command.exit_status import DONE
from requant.command.output import Output

if TYPE_CHECKING:
    from requant.description import Operation

HELP = "Print a completion script for bash, zsh or fish."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the name of the shell."""
    parser.add_argument("shell", choices=list(_SCRIPTS), help="the shell that the script is for")


def run(arguments: argparse.Namespace, _: Output) -> int:
    """Print the script of `arguments.parser` and of the operations that are its subcommands."""
    from requant.operators.registry import OPERATORS

    names = _names_of_operations(arguments.operations())
    places = list(_places("requant", arguments.parser(), names))
    # Their options are known when they are loaded.
    places[0].commands.extend(OPERATORS)
    sys.stdout.write(_SCRIPTS[arguments.shell](places))
    return DONE


@dataclass(frozen=True, slots=True)
class _Place:
    """What can follow some words of the command line, joined with slashes.

    `options`: each with the values that it takes: None for a flag, and none where they are not known.
    """

    name: str
    commands: list[str] = field(default_factory=list)
    options: dict[str, Sequence[str] | None] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)


Names = Mapping[tuple[str, str], Sequence[str]]
"""What options of operations can be, by operation and option."""


def _places(name: str, parser: argparse.ArgumentParser, names: Names) -> Iterator[_Place]:
    """Yield the place of a parser, and those of its subcommands."""
    place = _Place(name)
    subcommands: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            subcommands |= action.choices
        elif action.option_strings:
            values = None if action.nargs == 0 else _values(name, action, names)
            place.options.update(dict.fromkeys(action.option_strings, values))
        else:
            place.arguments.extend(_values(name, action, names))
    place.commands.extend(subcommands)
    yield place
    for command, subparser in subcommands.items():
        yield from _places(f"{name}/{command}", subparser, names)


def _values(name: str, action: argparse.Action, names: Names) -> Sequence[str]:
    """Return what an argument can be: what the parser knows, or the names that are looked up later."""
    if action.choices is not None:
        return [str(each) for each in action.choices]
    if name.startswith("requant/checkpoint/"):
        return _names_of_checkpoints().get(action.dest, ())
    return names.get((name.removeprefix("requant/"), action.dest), ())


@cache
def _names_of_checkpoints() -> Mapping[str, Sequence[str]]:
    from requant.checkpoint.gguf.mixtures import TARGETS
    from requant.checkpoint.onnx.block_quantization import FORM_NAMES
    from requant.checkpoint.profiles import CHECKPOINT_PROFILES
    from requant.checkpoint.schemes import GIVEN_SCHEMES, SCHEMES

    schemes = dict.fromkeys((*SCHEMES, *GIVEN_SCHEMES, *TARGETS, *FORM_NAMES))
    return {"scheme": list(schemes), "profile": list(CHECKPOINT_PROFILES)}


def _names_of_operations(operations: Iterable[Operation]) -> Names:
    return {
        (operation.name, option.name): option.choices.values
        for operation in operations
        for option in operation.options
        if option.choices is not None
    }


def _case(patterns: Sequence[str], statement: str) -> str:
    return f"        {'|'.join(map(quote, patterns))}) {statement} ;;"


def _posix(places: Sequence[_Place], previous: str, current: str) -> list[str]:
    """Return the lines that bash and zsh share: find the place, then the words that can follow."""
    below = [each.name for each in places[1:]]
    lines = [f'        case "$place/$word" in {"|".join(map(quote, below))}) place="$place/$word" ;; esac', "    done"]
    lines.append(f'    case "$place {previous}" in')
    taking = {
        (f"{place.name} {option}"): values
        for place in places
        for option, values in place.options.items()
        if values is not None
    }
    by_values: dict[str, list[str]] = {}
    for what, values in taking.items():
        by_values.setdefault(" ".join(values), []).append(what)
    lines += [_case(patterns, f"names={quote(values)}") for values, patterns in by_values.items()]
    lines += ["        *)", f'        case "$place {current}" in']
    for place in places:
        lines.append(f"        {quote(place.name)}' '-*) names={quote(' '.join(place.options))} ;;")
        follow = " ".join((*place.commands, *place.arguments))
        if follow:
            lines.append(f"        {quote(place.name)}' '*) names={quote(follow)} ;;")
    return [*lines, "        esac ;;", "    esac"]


def _bash(places: Sequence[_Place]) -> str:
    lines = [
        "_requant() {",
        "    local place=requant word names=''",
        '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        *_posix(places, "${COMP_WORDS[COMP_CWORD-1]}", "${COMP_WORDS[COMP_CWORD]}"),
        '    COMPREPLY=($(compgen -W "$names" -- "${COMP_WORDS[COMP_CWORD]}"))',
        "}",
        "complete -o bashdefault -o default -F _requant requant",
    ]
    return "\n".join([*lines, ""])


def _zsh(places: Sequence[_Place]) -> str:
    lines = [
        "#compdef requant",
        "_requant() {",
        "    local place=requant word names=''",
        '    for word in "${(@)words[2,CURRENT-1]}"; do',
        *_posix(places, "${words[CURRENT-1]}", "${words[CURRENT]}"),
        '    if [[ -n "$names" ]]; then compadd -- ${=names}; else _files; fi',
        "}",
        "compdef _requant requant",
    ]
    return "\n".join([*lines, ""])


def _fish(places: Sequence[_Place]) -> str:
    lines = [
        "function __requant_place",
        "    set -l place requant",
        "    for word in (commandline -opc)[2..-1]",
        '        switch "$place/$word"',
        f"            case {' '.join(quote(each.name) for each in places[1:])}",
        '                set place "$place/$word"',
        "        end",
        "    end",
        "    echo $place",
        "end",
    ]
    for place in places:
        at = f"complete -c requant -n 'test (__requant_place) = {place.name}'"
        follow = " ".join((*place.commands, *place.arguments))
        if follow:
            lines.append(f"{at} -f -a {quote(follow)}")
        for option, values in place.options.items():
            name = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            takes = "" if values is None else f" -x -a {quote(' '.join(values))}" if values else " -r"
            lines.append(f"{at} {name}{takes}")
    return "\n".join([*lines, ""])


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
