"""The matrix of docs/from_x_to_y.md: for each pair of formats, whether the one holds the numbers of the other.

Each pair is converted twice: a model as quantization makes it, and one with every code and scales of the whole range.

    python -m tests.core.checkpoint.run.conversion_matrix    writes the page's table
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from requant.checkpoint.plan.model import Direction, Repack
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import verdicts_of
from requant.checkpoint.run.verdicts import Outcome
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.weights.floats import Array
from requant.checkpoints import conversion_request, quantize_checkpoint
from requant.errors import CheckpointError
from tests.support.model_directory import make_model
from tests.support.safetensors_files import tensor_places

PAGE = Path(__file__).parents[4] / "docs" / "from_x_to_y.md"
FLOATS = ("BF16", "F16", "F32")
SCHEMES = (
    "W8A16", "W4A16", "W4A16_ASYM", "FP8_DYNAMIC:tensor", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4A16",
    "MXFP6A16", "MXFP8A16", "FINE_GRAINED_FP8", "FINE_GRAINED_FP8_UE8M0", "GPTQ_W4A16", "GPTQ_W4A16:asymmetric",
    "AWQ", "NF4",
)  # fmt: skip
# Nothing is moved to one scale for a tensor, and nothing to NF4.
TARGETS = (*(scheme for scheme in SCHEMES if scheme not in ("FP8_DYNAMIC:tensor", "NF4")), *FLOATS)
_AS_IT_IS = ("norm.weight", "shape", "g_idx", "quant_map", "bitsandbytes__nf4")
_BEGIN, _END = "<!-- matrix -->\n", "<!-- end of matrix -->\n"


def ordinary(scheme: str, directory: Path) -> Path:
    """Write a model as quantization makes it."""
    # Rows of two groups.
    quantize_checkpoint(make_model(directory / "plain", shards=1, size=256), directory / "quantized", scheme)
    return directory / "quantized"


def extreme(scheme: str, directory: Path) -> Path:
    """Write a model with every code, and scales of the whole range of their dtype."""
    model = ordinary(scheme, directory)
    (model / "requant-manifest.json").unlink()
    random = np.random.default_rng(1)
    for file in model.glob("*.safetensors"):
        data = np.fromfile(file, np.uint8)
        for entry in tensor_places(file):
            of_symmetric = scheme == "GPTQ_W4A16" and entry.name.endswith("qzeros")
            if of_symmetric or entry.name.endswith(_AS_IT_IS):
                continue
            data[entry.begin : entry.end] = _random(entry.name, entry.dtype, entry.end - entry.begin, random)
        data.tofile(file)
    return model


def _random(name: str, dtype: str, size: int, random: np.random.Generator) -> Array:
    codes = random.integers(0, 256, size, np.uint8)
    match dtype:
        case "F32" | "BF16" | "F16":
            exponents = {"F32": (100, 150), "BF16": (100, 150), "F16": (6, 24)}[dtype]
            mantissa = {"F32": 23, "BF16": 7, "F16": 10}[dtype]
            count = size * 8 // DTYPES[dtype].bits
            fields = random.integers(*exponents, count) << mantissa | random.integers(0, 1 << mantissa, count)
            return fields.astype(DTYPES[dtype].array).view(np.uint8)
        case "F8_E4M3":
            codes[codes & 0x7F == 0x7F] = 0x38
            return codes & 0x7F if name.endswith("scale") else codes
        case "U8" if "scale" in name:
            return random.integers(70, 180, size, np.uint8)
    return codes


def held(source: Path, target: str) -> bool | None:
    """Return whether the target holds all numbers of a model; None where nothing is repacked to it."""
    store, floats = LocalStore(source), target in FLOATS
    request = conversion_request(
        Direction.DEQUANTIZE if floats else Direction.QUANTIZE,
        scheme=None if floats else target,
        dtype=target if floats else None,
        repack=Repack.ROUNDED,
    )
    try:
        outcomes = {verdict.outcome for verdict in verdicts_of(plan_conversion(store, request), store).values()}
    except CheckpointError:
        return None
    return Outcome.ROUNDED not in outcomes


def row(scheme: str) -> Mapping[str, str]:
    """Return the words for each target of one source."""
    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        usual, whole = ordinary(scheme, Path(first)), extreme(scheme, Path(second))
        return {target: _word(held(usual, target), held(whole, target), target) for target in TARGETS}


def _word(usual: bool | None, whole: bool | None, target: str) -> str:
    if usual is None or whole is None:
        return "-"
    equal = "widened" if target in FLOATS else "exact"
    if usual:
        return equal if whole else f"{equal} or refused"
    return "rounded"


def line(scheme: str) -> str:
    """Return a line of the table."""
    return f"| `{scheme}` | {' | '.join(row(scheme).values())} |"


def lines_of_page() -> dict[str, str]:
    """Return the lines of the page's table by their schemes."""
    table = PAGE.read_text(encoding="utf-8").partition(_BEGIN)[2].partition(_END)[0].splitlines()
    return {each.split("`")[1]: each for each in table if each.startswith("| `")}


def main() -> None:
    """Write the table."""
    head = f"| from | {' | '.join(f'`{target}`' for target in TARGETS)} |\n|{' --- |' * (len(TARGETS) + 1)}\n"
    table = head + "".join(f"{line(scheme)}\n" for scheme in SCHEMES)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    PAGE.write_text(before + _BEGIN + table + _END + rest.partition(_END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
