"""The version of torch that is installed, as far as our profiles and operators tell versions apart.

The arithmetic of eager quantized tensors changed in 2.14.
"""

from __future__ import annotations

from importlib import metadata, util


def _since_2_14() -> bool:
    if util.find_spec("torch") is None:
        return False
    major, minor = metadata.version("torch").split(".")[:2]
    return (int(major), int(minor)) >= (2, 14)


VERSION = "2.14" if _since_2_14() else "2.13"
"""The implementation of the eager operators."""
EAGER_PROFILE = "torch_2_14" if _since_2_14() else "torch"
