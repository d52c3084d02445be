"""The certificate of a converted checkpoint as an in-toto statement.

    subject         the files of the checkpoint but the manifest, with their SHA-256
    predicateType   urn:requant:checkpoint-conversion:v1 (docs/certificates.md)
    predicate       source: its files with their SHA-256; request; profile; requant; tensors: their verdicts

Source: in-toto attestation framework, Statement v1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from requant.checkpoint.plan.source import MANIFEST
from requant.checkpoint.run.destination import CONFIG, Manifest, manifest_name
from requant.checkpoint.storage.store import Store
from requant.checkpoint.verify.gguf_file import check_file
from requant.checkpoint.verify.structure import Fault, check_structure
from requant.errors import CheckpointError, VerificationError

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:requant:checkpoint-conversion:v1"


def statement_of(store: Store) -> dict[str, Any]:
    """Return the statement about the checkpoint at `store`, after its files were compared with the manifest.

    Raises CheckpointError for a checkpoint without a certificate, VerificationError for one that was changed,
    StorageError.
    """
    structure = check_structure(store, hashes=True)
    manifest = structure.manifest
    return _statement(
        MANIFEST, None if manifest is None or CONFIG not in manifest.files else manifest, structure.faults
    )


def statement_of_file(folder: Store, name: str) -> dict[str, Any]:
    """Return the statement about the GGUF file `name`, likewise."""
    checked = check_file(folder, name, hashes=True)
    return _statement(manifest_name(name), checked.manifest, checked.faults)


def _statement(name: str, manifest: Manifest | None, faults: Sequence[Fault]) -> dict[str, Any]:
    """Return a statement. `name`: of the manifest, which is None where it is not there or not complete."""
    if manifest is None or manifest.certificate is None:
        raise CheckpointError(
            f"{name} has no certificate: convert the source again with --certify, or repack it", file=name
        )
    if faults:
        raise VerificationError(faults[0].detail, file=faults[0].file, tensor=faults[0].tensor)
    files, certificate = manifest.files, manifest.certificate
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": files[name].sha256}} for name in sorted(files)],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "plan": manifest.plan,
            "request": dict(manifest.request),
            **certificate.members,
            "sources": [
                {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(certificate.sources.items())
            ],
        },
    }
