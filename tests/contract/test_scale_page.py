"""docs/checkpoints_at_scale.md: its commands are those of the parser, and its numbers those of the code."""

from __future__ import annotations

import json
import re
import shlex
import tomllib

from requant.checkpoint.storage.object_store import PART
from requant.checkpoint.storage.remote_store import BLOCK, CONNECTIONS
from requant.checkpoint.workers import LEASE_SECONDS
from requant.command.main import command_parser
from requant.engines.ray import RETRIES
from tests.conftest import ROOT
from tests.support.page_programs import DOCS, blocks

PAGE = (DOCS / "checkpoints_at_scale.md").read_text()
SCRIPTS = [block.text for block in blocks(PAGE) if block.language == "sh"]


def test_the_commands_are_parsed() -> None:
    lines = [line for script in SCRIPTS for line in script.splitlines()]
    # Variables stand before a command, or are numbers in it.
    words = [shlex.split(re.sub(r'"\$\w+"', "4", line)) for line in lines if re.match(r"(\w+=\S+ )?requant ", line)]
    (batch,) = re.findall(r"--container-overrides '(.*?)'", PAGE)
    commands = [each[each.index("requant") + 1 :] for each in words] + [json.loads(batch)["command"]]
    assert len(commands) == 7
    for command in commands:
        command_parser().parse_args(command)


def test_the_extras_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {name for group in re.findall(r"'\.\[([\w,]+)\]'", PAGE) for name in group.split(",")}
    assert asked == {"stores", "ray"}
    assert asked <= extras.keys()


def test_the_numbers() -> None:
    assert (BLOCK, CONNECTIONS, PART, LEASE_SECONDS, RETRIES) == (4 << 20, 8, 8 << 20, 300, 10)
    for text in (
        "Ranges of 4 MiB, up to eight at a time",
        "in parts of 8 MiB",
        "valid for five minutes",
        "up to ten times",
    ):
        assert text in PAGE
    assert f"{141e9 / BLOCK / 1000:.1f}" == "33.6"
    assert f"{40e9 / PART / 1000:.1f}" == "4.8"
    assert 3.5 < 100 * (33.6 * 0.0004 + 4.8 * 0.005) < 4.5
