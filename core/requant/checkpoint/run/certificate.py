"""The certificate of a conversion, a member of its manifest: what it was made of, by what, and what became of each
tensor. `requant checkpoint verify --source` derives it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from requant.checkpoint.profiles import CheckpointProfile
from requant.checkpoint.run.verdicts import Verdict, verdict_of
from requant.version import VERSION


@dataclass(frozen=True, slots=True)
class Certificate:
    """`sources`: the SHA-256, in hex, of the source's files by name. `tensors`: by the names of plain tensors, and of
    weights before they are quantized. `profile`: with the system whose bits it has, None where nothing was quantized by
    one. `requant`: the version that made it.
    """

    sources: Mapping[str, str]
    tensors: Mapping[str, Verdict]
    profile: Mapping[str, str] | None
    requant: str

    @classmethod
    def of(
        cls, profile: CheckpointProfile | None, sources: Mapping[str, str], tensors: Mapping[str, Verdict]
    ) -> Certificate:
        """Return the certificate of a conversion by this version."""
        described = None
        if profile is not None:
            described = {"name": profile.name, "system": profile.system, "version": profile.version}
        return cls(sources, tensors, described, VERSION)

    @property
    def members(self) -> dict[str, Any]:
        """The certificate as members of JSON."""
        return {
            "requant": self.requant,
            "profile": self.profile,
            "sources": {name: self.sources[name] for name in sorted(self.sources)},
            "tensors": {name: self.tensors[name].members for name in sorted(self.tensors)},
        }


def certificate_of(members: Mapping[str, Any]) -> Certificate:
    """Return the certificate that has these `members`. Raises KeyError, TypeError, ValueError or AttributeError for
    anything else.
    """
    profile = members["profile"]
    return Certificate(
        {str(name): str(digest) for name, digest in members["sources"].items()},
        {str(name): verdict_of(verdict) for name, verdict in members["tensors"].items()},
        None if profile is None else {str(name): str(value) for name, value in profile.items()},
        str(members["requant"]),
    )
