"""The options that several subcommands have, and the request that they make."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from requant.command.output import Output

if TYPE_CHECKING:
    from requant.checkpoint.plan.model import Direction, Plan, Request, SchemeFor
    from requant.checkpoint.storage.store import Store

_NOT_FINITE = ("refuse", "convert")


def place(text: str) -> str:
    """Refuse a path or URL that is empty, such as a shell's variable that is not set. It is no working directory."""
    if not text:
        raise argparse.ArgumentTypeError("the text is empty; the working directory is '.'")
    return text


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument SOURCE."""
    parser.add_argument(
        "source",
        type=place,
        metavar="SOURCE",
        help="the model: a directory with config.json and safetensors files, a model in Hugging Face's cache "
        "(models--*), the URL of an object store, or a .gguf or .onnx file",
    )


def add_destination(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument DESTINATION."""
    parser.add_argument(
        "destination",
        type=place,
        metavar="DESTINATION",
        help="the directory or URL to write; a file if SOURCE is one, without --like. Complete files of a run that did "
        "not finish are kept",
    )


class _Scheme(argparse.Action):
    """Adds a scheme, and how many modules were named before it: those after it are its own."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        known = getattr(namespace, self.dest) or ()
        setattr(namespace, self.dest, (*known, (values, len(getattr(namespace, "targets", None) or ()))))


def add_scheme_option(parser: argparse._ActionsContainer, *, more: str = "") -> None:
    """Add `--scheme`. `more`: what else is said of it."""
    parser.add_argument(
        "--scheme",
        action=_Scheme,
        metavar="NAME",
        help="the format of the quantized weights: W8A8, W4A16, FP8_DYNAMIC, NVFP4A16 and so on; for a GGUF file Q8_0 "
        "and so on, for an ONNX model MatMulNBits4 and so on, in any case. `requant checkpoint schemes` lists all"
        + more,
    )


def add_scheme_options(group: argparse._MutuallyExclusiveGroup) -> None:
    """Add `--scheme`, for one or several, and `--schemes`."""
    several = ". Repeatable, each followed by its --for: a module has the first scheme that is for it"
    add_scheme_option(group, more=several)
    group.add_argument(
        "--schemes",
        type=place,
        metavar="FILE",
        help="a JSON file with several schemes, in place of --scheme and --for, at a path or the URL of an object: "
        '[{"scheme": "NVFP4A16", "targets": ["re:.*experts.*"]}, ...]',
    )


def add_quantization_options(parser: argparse._ActionsContainer) -> None:
    """Add what says by whose arithmetic weights are quantized, and which."""
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="the library whose bits are reproduced: compressed-tensors-cpu, compressed-tensors-cuda and so on. "
        "Default: the scheme's first profile",
    )
    parser.add_argument(
        "--for",
        "--targets",
        dest="targets",
        action="append",
        metavar="MODULE",
        help="quantize only the module of this name, or, after 're:', modules whose name the regular expression "
        "matches. Repeatable. Default: Linear, all linear modules. After one of several --scheme: the modules of that "
        "scheme; Linear is all that have none before",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="MODULE",
        help="do not quantize the module of this name, or, after 're:', modules whose name the regular expression "
        "matches: --ignore 're:.*o_proj$'. Repeatable. Embeddings, output layers, expert routers, norms, convolutions "
        "and vision and audio towers are not quantized either, unless 'none' is given: --ignore none leaves nothing "
        "out, --ignore none --ignore lm_head only lm_head, as llm-compressor does with such a list",
    )
    parser.add_argument(
        "--not-finite",
        choices=_NOT_FINITE,
        help="what to do with a weight that has a NaN or an infinity: refuse it (default), or convert it as the "
        "library does",
    )
    parser.add_argument(
        "--input-scales",
        type=place,
        metavar="FILE",
        help="scales of inputs that were found with data, for FP8 and NVFP4, at a path or a URL: JSON, "
        '{"model.layers.0.mlp.up_proj": 0.0123, ...}, or safetensors, a file or a directory, with tensors '
        "X.input_scale (FP8: largest magnitude / 448) or X.input_global_scale (NVFP4: 448 * 6 / largest magnitude)",
    )
    parser.add_argument(
        "--kv-scales",
        type=place,
        metavar="FILE",
        help="keep keys and values in FP8, by scales that were found with data: X.k_scale and X.v_scale of attention "
        "modules X, largest magnitude / 448, in a file as for --input-scales; with any scheme of compressed-tensors",
    )


def add_dtype_option(parser: argparse.ArgumentParser) -> None:
    """Add the dtype of dequantized weights."""
    parser.add_argument(
        "--dtype",
        choices=["BF16", "F16", "F32"],
        type=str.upper,
        help="dtype of the dequantized weights, also of those that are then quantized in another way. Default: the one "
        "in config.json, or BF16 if it has none",
    )


def add_like_option(parser: argparse._ActionsContainer, *, of_target: bool = False) -> None:
    """Add `--like`."""
    from_target = "; to a GGUF file, that file of the same model in F32, F16 or BF16, which convert_hf_to_gguf.py made"
    parser.add_argument(
        "--like",
        type=place,
        metavar="MODEL",
        help="from a GGUF file to safetensors: the directory of the same model, of which config.json, tokenizer and "
        f"names are taken, and the weights are not read{from_target if of_target else ''}",
    )


def add_certify_option(parser: argparse.ArgumentParser) -> None:
    """Add `--certify`."""
    parser.add_argument(
        "--certify",
        action="store_true",
        help="compare each number that the source holds with the one that is written, and state in the manifest which "
        "tensors are exact, widened or rounded, and the SHA-256 of all files; `requant checkpoint attest` prints it. "
        "With --dry-run the whole source is read and nothing is written",
    )


def add_threads_option(parser: argparse.ArgumentParser) -> None:
    """Add `--threads`."""
    parser.add_argument(
        "--threads", type=_positive, metavar="N", help="number of threads. Default: the CPUs available to this process"
    )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


OF_QUANTIZATION = ("profile", "targets", "ignore", "not_finite", "input_scales", "kv_scales")
"""The options of `add_quantization_options`."""


def refuse_given(arguments: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """End the command if one of these options was given, instead of leaving it without effect."""
    for name in names:
        value = getattr(arguments, name, None)
        if value is not None and value is not False and value != []:
            arguments.refuse(f"--{_OPTIONS.get(name, name).replace('_', '-')} {why}")


_OPTIONS = {"targets": "for"}
"""The options that have other names than what they set."""


def print_document(text: str, members: Mapping[str, Any], arguments: argparse.Namespace, output: Output) -> None:
    """Print a result as text, or with `--json` as JSON."""
    as_json = getattr(arguments, "json", False)
    output.done(json.dumps(members, indent=2, ensure_ascii=False) if as_json else text, members)


def planned(arguments: argparse.Namespace, direction: Direction) -> tuple[Store, Plan]:
    """Return the source that the arguments name, and the plan of what is asked for."""
    from requant.checkpoint.plan.planner import plan_conversion
    from requant.checkpoints import open_source

    source = open_source(arguments.source, getattr(arguments, "like", None))
    return source, plan_conversion(source, request_of(arguments, direction))


def request_of(arguments: argparse.Namespace, direction: Direction) -> Request:
    """Return what the options ask for."""
    from requant.checkpoint.plan.model import Direction
    from requant.checkpoint.selection import DEFAULT_IGNORE
    from requant.checkpoints import conversion_request

    names = ("profile", "targets", "not_finite", "dtype", "repack", "certify", "input_scales", "kv_scales")
    values = {name: getattr(arguments, name, None) for name in names}
    if direction is Direction.QUANTIZE:
        values["scheme"] = one = one_scheme(arguments)
        if one is None:
            values |= {"scheme": _several(arguments), "targets": None}
    entries, without_default = ignored(arguments)
    return conversion_request(
        direction,
        ignore=entries if without_default else (*entries, *DEFAULT_IGNORE),
        **{k: v for k, v in values.items() if v is not None},
    )


def is_quantization(arguments: argparse.Namespace) -> bool:
    """Return whether a scheme is given."""
    return bool(getattr(arguments, "scheme", None) or getattr(arguments, "schemes", None))


def one_scheme(arguments: argparse.Namespace) -> str | None:
    """Return the scheme, None if there is none or several."""
    given: Sequence[tuple[str, int]] = getattr(arguments, "scheme", None) or ()
    return given[0][0] if len(given) == 1 else None


def _several(arguments: argparse.Namespace) -> Sequence[SchemeFor]:
    """Return several schemes, each with its modules. End the command for modules of none of them."""
    from requant.checkpoint.plan.model import SchemeFor

    if arguments.schemes is not None:
        refuse_given(arguments, ("targets",), "is not for --schemes: write the modules into that file, as targets")
        return _schemes_in(arguments.schemes)
    targets: Sequence[str] = arguments.targets or ()
    names, begins = zip(*arguments.scheme, strict=True)
    if begins[0]:
        arguments.refuse(f"--for '{targets[0]}' stands before the first --scheme: name it after the scheme of its own")
    ends = (*begins[1:], len(targets))
    return [SchemeFor(name, tuple(targets[begin:end])) for name, begin, end in zip(names, begins, ends, strict=True)]


_MAX_BYTES_OF_SCHEMES = 1 << 20


def _schemes_in(location: str) -> Sequence[SchemeFor]:
    """Return the schemes of a JSON file. Raise ParameterError, StorageError."""
    from requant.checkpoint.plan.model import schemes_of
    from requant.checkpoint.small_json import parse_small_json
    from requant.checkpoint.storage.location import open_folder
    from requant.errors import ParameterError, StorageError, excerpt

    folder, name = open_folder(location)
    data = folder.get(name, _MAX_BYTES_OF_SCHEMES)
    if data is None:
        raise StorageError(f"{location} does not exist: --schemes is a JSON file with several schemes")
    try:
        return schemes_of(parse_small_json(data, _MAX_BYTES_OF_SCHEMES))
    except (KeyError, TypeError):
        wrong = "has other members"
    except ValueError as error:
        wrong = f"is not JSON that is read ({excerpt(str(error))})"
    raise ParameterError(f'{location} {wrong}; expected [{{"scheme": "NVFP4A16", "targets": ["re:.*experts.*"]}}, ...]')


_NONE = "none"


def ignored(arguments: argparse.Namespace) -> tuple[tuple[str, ...], bool]:
    """Return the entries of `--ignore` without `none`, and whether that was among them."""
    entries = getattr(arguments, "ignore", ())
    return tuple(entry for entry in entries if entry != _NONE), _NONE in entries


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number
