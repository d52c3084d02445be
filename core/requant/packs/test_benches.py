"""Test benches that check themselves: a C program and a Verilog module, for a kernel and a design of the user's.

Both end with a status that is not 0 if a vector fails. The Verilog one knows how many vectors there are, and needs no
unknown values: two-state simulators run it, too. Verilator takes a comment that begins with its name for a directive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from requant.convert.vectors.export import Column, Kind, Table

_SHOWN = 10


def c_type(column: Column) -> str:
    """Return the type of a column in C: an integer, or the bits of a float."""
    return f"{'int' if column.kind is Kind.SIGNED else 'uint'}{column.container}_t"


def c_test_bench(table: Table, name: str, about: Sequence[str]) -> str:
    """Return a program that calls `kernel` for each vector of `vectors.h`. `name`: the prefix of its identifiers."""
    of_kernel = [f"{c_type(each)} {each.name}" for each in (table.input, *table.parameters)]
    given = [f"{name}_{table.input.name}[i]", *(f"{name}_{each.name}[set]" for each in table.parameters)]
    uses_set = [] if table.parameters else ["        (void)set;"]
    result = c_type(table.expected)
    lines = [
        "/*",
        *(f" * {each}".rstrip() for each in about),
        " *",
        " *     cc -std=c99 -o testbench testbench.c kernel.c && ./testbench",
        " */",
        "#include <inttypes.h>",
        "#include <stdio.h>",
        '#include "vectors.h"',
        "",
        "/* What is tested. Floats are passed as their bits. */",
        f"{result} kernel({', '.join(of_kernel)});",
        "",
        "int main(void)",
        "{",
        "    int failed = 0;",
        f"    for (int i = 0; i < {name.upper()}_COUNT; i++) {{",
        f"        int set = {name}_parameter_set[i];",
        *uses_set,
        f"        {result} found = kernel({', '.join(given)});",
        f"        if (found != {name}_expected[i] && failed++ < {_SHOWN})",
        '            printf("vector %d: %" PRId64 ", expected %" PRId64 "\\n", i, (int64_t)found,',
        f"                   (int64_t){name}_expected[i]);",
        "    }",
        f'    printf("%d vectors, %d failed\\n", {name.upper()}_COUNT, failed);',
        "    return failed != 0;",
        "}",
    ]
    return "\n".join([*lines, ""])


def verilog_test_bench(table: Table, count: int, about: Sequence[str]) -> str:
    """Return a module that drives the module `dut` with each word of `vectors.mem`."""
    fields = (*table.parameters, table.input, table.expected)
    width = sum(each.width for each in fields)
    ports = [*(f".{each.name}({each.name})" for each in table.parameters), ".value(value)", ".result(result)"]
    names = [*(each.name for each in table.parameters), "value", "expected"]
    lines = [
        *(f"// {each}".rstrip() for each in about),
        "//",
        "//     $ iverilog -g2012 -o testbench testbench.sv dut.sv && vvp -n testbench",
        "//     $ verilator --binary --top-module testbench testbench.sv dut.sv && obj_dir/Vtestbench",
        "//",
        "// The design has these ports; floats are their bits:",
        *(f"//     {each}" for each in _ports(table)),
        "module testbench;",
        f"    localparam integer COUNT = {count};",
        f"    reg [{width - 1}:0] vectors [0:COUNT-1];",
        *(f"    reg {_range(each)} {name};" for each, name in zip(fields, names, strict=True)),
        f"    wire {_range(table.expected)} result;",
        "    integer index, failed;",
        "",
        f"    dut under_test ({', '.join(ports)});",
        "",
        "    initial begin",
        "        failed = 0;",
        '        $readmemh("vectors.mem", vectors);',
        "        for (index = 0; index < COUNT; index = index + 1) begin",
        f"            {{{', '.join(names)}}} = vectors[index];",
        "            #1;",
        "            if (result !== expected) begin",
        "                failed = failed + 1;",
        f"                if (failed <= {_SHOWN})",
        '                    $display("vector %0d: %0d, expected %0d", index, result, expected);',
        "            end",
        "        end",
        '        $display("%0d vectors, %0d failed", COUNT, failed);',
        "        if (failed != 0) $fatal(1);",
        "        $finish;",
        "    end",
        "endmodule",
    ]
    return "\n".join([*lines, ""])


def _range(column: Column) -> str:
    return f"{'signed ' if column.kind is Kind.SIGNED else ''}[{column.width - 1}:0]"


def _ports(table: Table) -> Iterator[str]:
    for each in table.parameters:
        yield f"input  {_range(each)} {each.name}"
    yield f"input  {_range(table.input)} value"
    yield f"output {_range(table.expected)} result"
