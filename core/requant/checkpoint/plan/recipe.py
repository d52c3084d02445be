"""The schemes of a request, and which of them is that of a module.

Of several schemes whose targets match a module, the first is its scheme. Source: llm-compressor 0.14,
`_match_tensors_to_schemes` (`entrypoints/model_free/converter.py`).

Loaders choose by config.json, and not all by the order of its groups: compressed-tensors 0.20 takes names before
expressions, expressions by the alphabet, and `Linear` last (`match_targets` in `utils/match.py`,
`apply_quantization_config` in `quantization/lifecycle/apply.py`). Where that gives a module another scheme,
llm-compressor's files cannot be loaded. Here the targets of its scheme, and of no other, name it in config.json: names
come first for all loaders.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from requant.checkpoint.given_scales import OF_INPUTS, Scales
from requant.checkpoint.name_patterns import NamePatterns
from requant.checkpoint.plan.model import Repack, Request, SchemeFor
from requant.checkpoint.plan.refusals import Refusals
from requant.checkpoint.quantization_config.compressed_tensors import with_kv_cache
from requant.checkpoint.scheme import Members, Scheme, quantization_config
from requant.checkpoint.schemes import GIVEN_SCHEMES, SCHEMES, scheme_named
from requant.checkpoint.selection import ALL, Selection, SkipReason
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import CheckpointError, ParameterError, excerpt
from requant.errors.cancellation import checked

# Matching a name may take a millisecond.
_NAMES_BETWEEN_CHECKS = 16


class Recipe:
    """The schemes of a request to quantize. They are known by their numbers, from 0.

    `ignore`: with what the schemes always leave as it is. `selection`: by that and by the targets of all schemes.

    Raises CheckpointError without a scheme, UnknownNameError for one that does not exist, ParameterError for several
    that one model cannot have.
    """

    def __init__(self, request: Request) -> None:
        if not request.schemes:
            raise CheckpointError(
                "quantizing requires a scheme: choose one of those that `requant checkpoint schemes` lists"
            )
        self.schemes = tuple(scheme_named(each.scheme) for each in request.schemes)
        self.targets = tuple(each.targets for each in request.schemes)
        if len(self.schemes) > 1:
            if request.repack is not Repack.NO:
                raise ParameterError("a repack moves all weights to one format: choose one scheme")
            _check_together(self.schemes, self.targets)
        _check_given(request, self.schemes)
        self.input_scales, self.kv_scales = request.input_scales, request.kv_scales
        self.formats: tuple[WeightFormat, ...] = tuple(each.format(request.profile) for each in self.schemes)
        self.always_ignored = tuple(dict.fromkeys(entry for each in self.schemes for entry in each.always_ignored))
        self.ignore = (*request.ignore, *self.always_ignored)
        self.selection = Selection(request.targets, self.ignore)
        self._number = {entry: number for number, of_one in enumerate(self.targets) for entry in of_one or (ALL,)}

    @property
    def stated(self) -> tuple[SchemeFor, ...]:
        """The schemes of the request, by their full names."""
        return tuple(SchemeFor(scheme.name, of_one) for scheme, of_one in zip(self.schemes, self.targets, strict=True))

    @property
    def fused(self) -> bool:
        """Whether weights of fused sets share a scale, if their scheme is one that does that."""
        return any(each.fused for each in self.schemes)

    @property
    def metadata(self) -> dict[str, str] | None:
        """The metadata of the files' headers."""
        stated = self.schemes[0].metadata
        return None if stated is None else dict(stated)

    def scheme_of(self, tensor: str) -> int | None:
        """Return the number of the scheme of a tensor, None for one that is not quantized."""
        if self.selection.skip_reason(tensor) is not None:
            return None
        target = self.selection.target_of(tensor.removesuffix(".weight"))
        return None if target is None else self._number[target]

    def named_by_tensor(self, scales: Scales) -> Scales:
        """Return scales of inputs by the names of tensors, where they have those of modules."""
        named = []
        for name, number in checked(scales, _NAMES_BETWEEN_CHECKS):
            if name.rpartition(".")[2] not in OF_INPUTS:
                scheme = self.scheme_of(f"{name}.weight")
                suffix = None if scheme is None else self.schemes[scheme].input_scale
                name = name if suffix is None else f"{name}.{suffix}"
            named.append((name, number))
        return tuple(sorted(named))

    def check_used(self, names: Collection[str], used: Collection[int], refusals: Refusals) -> None:
        """Refuse each of several schemes that is for no tensor. `names`: of all; `used`: the schemes that are."""
        for number, scheme in enumerate(self.schemes):
            if number in used or len(self.schemes) == 1:
                continue
            alone = Selection(self.targets[number], ())
            matching = [each for each in checked(names, _NAMES_BETWEEN_CHECKS) if alone.skip_reason(each) is None]
            listed = ", ".join(f"'{excerpt(entry)}'" for entry in self.targets[number])
            if not matching:
                reason, instead = f"no module with a .weight matches {listed}", "correct its targets, or leave it out"
            elif all(self.selection.skip_reason(each) is SkipReason.IGNORED for each in matching):
                reason = f"all that match {listed} are in ignore ({len(matching)} weights)"
                instead = "choose other targets for it, or another ignore"
            else:
                reason = f"all that match {listed} have a scheme that is stated before it ({len(matching)} weights)"
                instead = "name the schemes in another order, the most special first"
            refusals.add(f"nothing to quantize to {scheme.name}: {reason}", instead)

    def quantization_config(self, quantized: Iterable[str], ignore: Sequence[str], left: Sequence[str]) -> Members:
        """Return the member `quantization_config` of config.json.

        `quantized`, `left`: the names of the modules that are quantized, and of those with a weight of two dimensions
        that are not.
        """
        targets = self.targets if len(self.schemes) == 1 else self._targets_for_loaders(quantized)
        members = quantization_config(tuple(zip(self.schemes, targets, strict=True)), ignore, left)
        return with_kv_cache(members) if self.kv_scales else members

    def _targets_for_loaders(self, quantized: Iterable[str]) -> list[list[str]]:
        """Return the targets of each scheme, with the modules for which compressed-tensors would find another one."""
        ordered = sorted(self._number.keys() - {ALL}, key=lambda entry: ("re:" in entry, entry))
        patterns = NamePatterns(ordered)
        targets = [list(of_one) for of_one in self.targets]
        for module in checked(quantized, _NAMES_BETWEEN_CHECKS):
            first, number = patterns.first(module), self.scheme_of(f"{module}.weight")
            found = self._number.get(ALL) if first is None else self._number[ordered[first]]
            if number is not None and found is not None and found != number:
                if module in targets[found]:
                    targets[found].remove(module)
                targets[number].append(module)
        return targets


_GIVE = "give them (input_scales, --input-scales FILE)"


def _check_given(request: Request, schemes: Sequence[Scheme]) -> None:
    """Raise ParameterError for scales of activations that no scheme takes, or that are not given to one that does."""
    needing = [scheme for scheme in schemes if scheme.input_scale is not None]
    repacks = request.repack is not Repack.NO
    if repacks and (needing or request.input_scales or request.kv_scales):
        raise ParameterError("a repack takes no scales of activations: choose a scheme without, or quantize the model")
    if needing and not request.input_scales:
        raise ParameterError(
            f"scheme {needing[0].name} has a scale for the inputs of each module, which is found with data: {_GIVE}, "
            "or choose a scheme that needs none, such as FP8_DYNAMIC, FP8_DYNAMIC:tensor or NVFP4A16"
        )
    if request.input_scales and not needing:
        raise ParameterError(
            f"scheme {schemes[0].name} has no scales of inputs: leave out input_scales, or choose one of "
            f"{', '.join(GIVEN_SCHEMES)}"
        )
    if request.kv_scales and any(scheme.group is None for scheme in schemes):
        raise ParameterError(
            "kv_scales are for schemes of compressed-tensors: leave them out, or choose one of those, such as "
            "FP8_DYNAMIC"
        )


def _check_together(schemes: Sequence[Scheme], targets: Sequence[Sequence[str]]) -> None:
    """Raise ParameterError for schemes that are not for parts of one model."""
    for scheme in schemes:
        if scheme.group is None:
            mixable = ", ".join(name for name in (*SCHEMES, *GIVEN_SCHEMES) if scheme_named(name).group is not None)
            raise ParameterError(
                f"scheme {scheme.name} cannot be one of several: its config.json has one scheme for all modules. "
                f"Choose schemes of compressed-tensors ({mixable}), or quantize the whole model to {scheme.name}"
            )
    first: dict[str, Scheme] = {}
    for scheme, of_one in zip(schemes, targets, strict=True):
        if not of_one:
            raise ParameterError(
                f"scheme {scheme.name} is one of several and has no targets: name its modules (--for 're:.*mlp.*'), or "
                "'Linear' for all that have no scheme yet"
            )
        for entry in of_one:
            other = first.setdefault(entry, scheme)
            if other is not scheme:
                raise ParameterError(
                    f"'{excerpt(entry)}' is a target of both {other.name} and {scheme.name}: give it to one of them"
                )
