"""The words in which operations and operators are described: tensors, options, members of replies, and the work.

A description is data. Protocols, functions, subcommands and tables are made from it by code that knows no operation.
"""

from requant.description.operation import Operation
from requant.description.options import LARGEST_INTEGER, Choices, Chooses, Group, Kind, OneOf, Option, Value, exactly_one
from requant.description.parts import (
    Argument,
    Elements,
    Input,
    Member,
    NumbersInput,
    NumbersOutput,
    Part,
    RecordMember,
    Records,
    RecordsInput,
    Report,
    TensorInput,
    TensorOutput,
    Trace,
)
from requant.description.work import (
    NO_LIMITS,
    Array,
    Limits,
    ModuleLimits,
    OperationCall,
    PlannedWork,
    Result,
    Stored,
    TensorValue,
    Work,
    cost_of_sums,
)

__all__ = [
    "LARGEST_INTEGER",
    "NO_LIMITS",
    "Argument",
    "Array",
    "Choices",
    "Chooses",
    "Elements",
    "Group",
    "Input",
    "Kind",
    "Limits",
    "Member",
    "ModuleLimits",
    "NumbersInput",
    "NumbersOutput",
    "OneOf",
    "Operation",
    "OperationCall",
    "Option",
    "Part",
    "PlannedWork",
    "RecordMember",
    "Records",
    "RecordsInput",
    "Report",
    "Result",
    "Stored",
    "TensorInput",
    "TensorOutput",
    "TensorValue",
    "Trace",
    "Value",
    "Work",
    "cost_of_sums",
    "exactly_one",
]
