"""oneDNN's dumps: each label gives its bits."""

from __future__ import annotations

import pytest

from tests.interop.blind import onednn
from tests.interop.blind.dump import check
from tests.interop.onednn.library import ENVIRONMENT, Onednn
from tests.interop.seed_of_the_day import generator

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not ENVIRONMENT.exists(), reason=f"there is no {ENVIRONMENT}"),
]


def test_labels() -> None:
    with Onednn(onednn.SETTING) as library:
        check("oneDNN", onednn.dumps(generator(604), 210, library), at_least=210)
