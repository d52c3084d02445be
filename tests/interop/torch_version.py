"""The version of torch that is installed, as far as our profiles and operators tell versions apart.

The arithmetic of eager quantized tensors changed in 2.14.
"""

from __future__ import annotations

from tests.support.installed_release import expected_release

_SINCE_2_14 = (expected_release("torch") or (0, 0)) >= (2, 14)

VERSION = "2.14" if _SINCE_2_14 else "2.13"
"""The implementation of the eager operators."""
EAGER_PROFILE = "torch_2_14" if _SINCE_2_14 else "torch"
