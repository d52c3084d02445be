"""An operator as an operation, which is what functions and subcommands are made from."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from requant.arrays.elements import flat_bits
from requant.description import (
    Array,
    Choices,
    Chooses,
    Kind,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
    Stored,
    TensorInput,
    TensorOutput,
    TensorValue,
    Trace,
)
from requant.errors import TypeFitError, UnsupportedError, excerpt
from requant.mlir.printer import print_type
from requant.mlir.types import TensorType
from requant.operators.checks import checked_call
from requant.operators.description import Operator, Work
from requant.operators.element_names import container
from requant.plan.operands import static_shape


def operation_of(operator: Operator) -> Operation:
    """Return an operator as an operation. Its version and implementation are options.

    A call is checked with its data, since operators look at those of scales and zero points.
    """

    def plan(call: OperationCall) -> PlannedWork:
        return _planned(operator, call)

    return Operation(
        name=operator.full_name,
        title=operator.full_name,
        group=operator.system,
        summary=operator.summary,
        request="",
        source=operator.source,
        inputs=tuple(
            TensorInput(name=each.name, description=each.description, optional=each.optional)
            for each in operator.inputs
        ),
        options=(*operator.attributes, *_choice_of_version(operator)),
        reply=tuple(TensorOutput(name=each.name, description=each.description) for each in operator.outputs),
        reply_title="",
        reply_description="",
        plan=plan,
        example=operator.example,
        trace=_trace(operator),
    )


def _trace(operator: Operator) -> Trace | None:
    if not operator.stages:
        return None
    stages = tuple(
        TensorOutput(name=each.name, description=each.description) for each in (*operator.stages, *operator.outputs)
    )
    return Trace(title="", description="", records=None, stages=stages)


def _choice_of_version(operator: Operator) -> list[Option]:
    implementations = operator.implementations
    options = [
        Option(
            name="implementation",
            description=implementations.description,
            default=operator.default_implementation,
            choices=Choices(implementations.name, implementations.values),
            chooses=Chooses.RULES if len(implementations.values) > 1 else None,
        )
    ]
    if operator.versions:
        opset = Option(
            name="opset",
            kind=Kind.INTEGER,
            description=f"The version of the system's operators, {operator.versions[0]} to {operator.last_version}.",
            default=operator.last_version,
        )
        options.insert(0, opset)
    return options


def _stored(type_: TensorType) -> Stored:
    dtype = container(type_.element)
    if dtype is None:
        raise UnsupportedError(f"tensors of {excerpt(print_type(type_.element))} are not supported")
    return Stored(type_, dtype)


def _planned(operator: Operator, call: OperationCall) -> PlannedWork:
    # An attribute that has its default may be one that the version does not have.
    attributes = {
        each.name: call.options[each.name]
        for each in operator.attributes
        if call.options[each.name] is not None and call.options[each.name] != each.default
    }

    def work_on(arrays: Mapping[str, Array]) -> tuple[Work, Mapping[str, TensorValue]]:
        given = {name: TensorValue(call.types[name], array) for name, array in arrays.items()}
        opset, implementation = call.options.get("opset"), call.options["implementation"]
        return operator.work_of(checked_call(operator, opset, implementation, given, attributes)), given

    def result_of(work: Work) -> Result:
        found = work.run()
        outputs = {each.name: found[each.name] for each in operator.outputs}
        return Result(outputs, stages=found if len(found) > len(outputs) else {})

    operands = {name: _stored(type_) for name, type_ in call.types.items()}
    if not call.arrays:
        return PlannedWork(operands=operands, run=lambda arrays: result_of(work_on(arrays)[0]), byte_count=0)
    for name, each in operands.items():
        if call.arrays[name].size != prod(static_shape(each.type)):
            raise TypeFitError(f"{name} has {call.arrays[name].size} elements; its type has others")
    work, given = work_on(
        {name: flat_bits(call.arrays[name], each.dtype, each.type.element, name) for name, each in operands.items()}
    )
    return PlannedWork(
        operands=operands,
        run=lambda _: result_of(work),
        byte_count=work.working_bytes(given),
        sums=work.elements,
        products=work.products,
    )
