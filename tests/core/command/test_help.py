"""The help of the command: alone it says what there is, and a wrong name says what was meant."""

from __future__ import annotations

import pytest

from requant.command.exit_status import WRONG_USAGE
from requant.command.main import main
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS
from requant.operations.explain import EXPLANATIONS


def test_the_command_alone_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == WRONG_USAGE
    listed = {
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:2] == "  " and line[2:3].isalpha()
    }
    assert {*OPERATIONS, *CONVERSIONS, *EXPLANATIONS, "vectors", "evaluate", "serve", "checkpoint"} <= listed


def test_a_name_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantise"]) == WRONG_USAGE
    assert "there is no command quantise (did you mean quantize" in capsys.readouterr().err
