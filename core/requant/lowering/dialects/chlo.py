"""The broadcasting operations of CHLO, which StableHLO's lowering of quantized operations emits."""

from __future__ import annotations

from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, traits_def
from xdsl.traits import Pure

from requant.lowering.dialects.stablehlo.formats import Typed
from requant.lowering.dialects.stablehlo.operations import FORMS, FormattedOperation

BROADCASTING = ("add", "subtract", "multiply", "divide")


def _operation(name: str) -> type[FormattedOperation]:
    members = {
        "__module__": __name__,
        "__doc__": f"`chlo.broadcast_{name}`: {name} after broadcasting.",
        "name": f"chlo.broadcast_{name}",
        "traits": traits_def(Pure()),
    }
    FORMS[f"chlo.broadcast_{name}"] = Typed(short=False)
    found: type[FormattedOperation] = irdl_op_definition(
        type(f"Broadcast{name.title()}", (FormattedOperation,), members)
    )
    return found


OPERATIONS = {name: _operation(name) for name in BROADCASTING}
Chlo = Dialect("chlo", list(OPERATIONS.values()))
