"""docs/lowering.md lists the passes with their options and shows what can be sent.

`tests.service.test_readme` runs its examples.
"""

from __future__ import annotations

import json
import re

import httpx

from requant.lowering.passes import PASSES
from tests.support.page_table import DOCS, page_table

PAGE = (DOCS / "lowering.md").read_text(encoding="utf-8")


def test_every_pass_is_described() -> None:
    rows = [row for row in page_table("lowering.md", "Passes") if len(row) == 4]
    assert [(name, summary, options) for name, summary, _, options in rows] == [
        (f"`{each.name}`", each.summary, ", ".join(f"`{name}={values[0]}`" for name, values in each.options.items()))
        for each in PASSES.values()
    ]
    assert all(keeps for _, _, keeps, _ in rows)


def test_the_examples_are_lowered(client: httpx.Client) -> None:
    requests = re.findall(r"-d '(.*?)'\n", PAGE.partition("\n## Examples\n")[0], re.DOTALL)
    replies = [client.post("/v1/lower", json=json.loads(request)) for request in requests]
    assert [reply.status_code for reply in replies] == [200, 200]
    assert "quant" not in replies[1].json()["module"]
    assert "arith.shrsi" in replies[1].json()["module"]
