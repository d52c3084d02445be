"""tosa_rescale.json: RESCALE itself, with every type, flag and rounding mode."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracles.tosa import Rescale
from tests.vector_cases.conversion import load


@dataclass(frozen=True)
class RescaleVector:
    """One graph that the reference model ran. `output` is empty unless it was valid, `error` then the code due."""

    name: str
    case: Rescale
    values: tuple[int, ...]
    output: tuple[int, ...]
    error: str | None
    inexact_bounds: tuple[tuple[int, int], ...]


def rescales() -> list[RescaleVector]:
    """All graphs. INEXACT_ROUND gives what the model gave; the other modes have but one right result."""
    errors = {"valid": None, "error": "unsupported", "unpredictable": "precondition_failed"}
    vectors = []
    for graph in load("tosa_rescale")["cases"]:
        inexact = graph["rounding_mode"] == "INEXACT_ROUND"
        output = graph.get("reference_model_output" if inexact else "output", ()) if graph["status"] == "valid" else ()
        case = Rescale(
            in_t=graph["in_t"],
            out_t=graph["out_t"],
            shape=tuple(graph["shape"]),
            multiplier=tuple(graph["multiplier"]),
            shift=tuple(graph["shift"]),
            **{
                name: graph[name]
                for name in (
                    "input_zp", "output_zp", "scale32", "rounding_mode", "per_channel", "input_unsigned",
                    "output_unsigned",
                )
            },
        )  # fmt: skip
        vectors.append(
            RescaleVector(
                f"tosa_rescale/{graph['id']}",
                case,
                tuple(graph["values"]),
                tuple(output),
                errors[graph["status"]],
                tuple(zip(graph.get("inexact_min", ()), graph.get("inexact_max", ()), strict=True)),
            )
        )
    return vectors
