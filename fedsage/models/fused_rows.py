"""Sums of scaled rows: the one product that the compiled training step is made of.

A row of sparse × dense, or of dense × dense, is a sum of rows of the second table. Written as
two loops, LLVM stores that sum and loads it again for every row it adds, and takes four times
as long. So it is told here to hold the sum in vectors. They are LLVM's own vectors, of no
processor in particular: they become AVX, SSE or NEON.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from fedsage.compiled import INT32, INT64, LINE, blocks, fetch_line, intrinsic

LANES = 8  # of a vector
ROWS_AHEAD = 6  # so much earlier a row is asked for
FAR = 300_000  # numbers in a table that no cache nearby holds
BLOCKS = (8 * LANES, 4 * LANES, LANES, 1)  # columns at a time, as many as are left
FLOAT = ir.FloatType()

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@intrinsic
def add_rows(typing, out, i, picked, scale, first, stride, start, end, table):
    """``out[i] += Σ_e scale.flat[first + e · stride] · table[picked[e]]``, e from ``start``.

    Args:
        typing: Numba's; not an argument of calls.
        out: A table as wide as ``table``; both float32, in C order.
        i: The row to add to.
        picked: int32, which rows of ``table``; None for row e itself.
        scale: float32, what each row is multiplied by.
        first: Where ``scale`` begins.
        stride: From one factor to the next.
        start: The first e.
        end: One more than the last e.
        table: The rows.
    """

    def codegen(context, build, signature, args):
        call_row_code(context, build, signature, args, "gather")
        return context.get_dummy_value()

    kinds = out, i, picked, scale, first, stride, start, end, table
    return types.void(*kinds), codegen


@intrinsic
def spread_row(typing, row, i, picked, scale, first, stride, start, end, out):
    """``out[picked[e]] += scale.flat[first + e · stride] · row[i]``: ``add_rows`` backwards."""

    def codegen(context, build, signature, args):
        call_row_code(context, build, signature, args, "scatter")
        return context.get_dummy_value()

    kinds = row, i, picked, scale, first, stride, start, end, out
    return types.void(*kinds), codegen


def call_row_code(context: Any, build: Any, signature: Any, args: Any, way: str) -> None:
    """Call the code for one row, given what numba knows about the arguments above."""

    def array(n: int) -> Any:
        return context.make_array(signature.args[n])(context, build, args[n])

    def integer(n: int) -> Any:
        return context.cast(build, args[n], signature.args[n], types.int64)

    every = isinstance(signature.args[2], types.NoneType)
    rows = ir.Constant(INT32.as_pointer(), None) if every else array(2).data
    count, width = (build.extract_value(array(8).shape, n) for n in range(2))
    one_row = build.gep(array(0).data, [build.mul(integer(1), width)])
    factors = build.gep(array(3).data, [integer(4)])
    given = [one_row, rows, factors, integer(5), integer(6), integer(7), array(8).data, width]
    if every:
        build.call(row_code(build.module, way, picks=False, fetches=False), given)
    elif way == "scatter":
        build.call(row_code(build.module, way, picks=True, fetches=True), given)
    else:
        far = build.icmp_signed(">", build.mul(count, width), INT64(FAR))
        with build.if_else(far) as branches:
            for branch, fetches in zip(branches, (True, False), strict=True):
                with branch:
                    build.call(row_code(build.module, way, True, fetches), given)


def row_code(module: Any, way: str, picks: bool, fetches: bool) -> Any:
    """The code behind both.

    With ``fetches`` it asks for each row some rows before it is needed. That pays where rows
    come from afar, and where they are written; elsewhere it is work for nothing.
    """
    floats, rows = FLOAT.as_pointer(), INT32.as_pointer()
    given = [floats, rows, floats, INT64, INT64, INT64, floats, INT64]
    code = own_function(module, f"fedsage_{way}_{picks:d}{fetches:d}", given)
    if not code.is_declaration:
        return code
    one_row, picked, scale, stride, start, end, table, width = code.args
    build = ir.IRBuilder(code.append_basic_block("entry"))
    column = INT64(0)
    for size in BLOCKS:
        count = build.udiv(build.sub(width, column), INT64(size))
        with blocks.for_range(build, count) as block:
            at = build.add(column, build.mul(block.index, INT64(size)))
            places = vectors_at(build, build.gep(one_row, [at]), size)
            held = [build.load(each, align=4) for each in places]
            sums = [blocks.alloca_once_value(build, each) for each in held]
            with blocks.for_range(build, end, start) as loop:
                row = loop.index
                if fetches:
                    soon = build.add(row, INT64(ROWS_AHEAD))
                    soon = build.select(build.icmp_signed("<", soon, end), soon, row)
                    soon = build.zext(build.load(build.gep(picked, [soon])), INT64)
                    there = build.gep(table, [build.add(build.mul(soon, width), at)])
                    for line in range(0, size, LINE):
                        fetch_line(build, build.gep(there, [INT64(line)]))
                if picks:
                    row = build.zext(build.load(build.gep(picked, [row])), INT64)
                factor = build.load(build.gep(scale, [build.mul(loop.index, stride)]))
                there = build.gep(table, [build.add(build.mul(row, width), at)])
                terms = vectors_at(build, there, size)
                if way == "gather":
                    loaded = [build.load(each, align=4) for each in terms]
                    add_scaled(build, sums, factor, loaded)
                else:
                    add_scaled(build, terms, factor, held)
            for total, each in zip(sums, places, strict=True) if way == "gather" else ():
                build.store(build.load(total), each, align=4)
        column = build.add(column, build.mul(count, INT64(size)))
    build.ret_void()
    return code


def own_function(module: Any, name: str, given: list[Any]) -> Any:
    """A function of its own, so that it is compiled once; a declaration if it is new."""
    kind = ir.FunctionType(ir.VoidType(), given)
    code = blocks.get_or_insert_function(module, kind, name)
    if code.is_declaration:
        code.linkage = "linkonce_odr"
        code.attributes.add("noinline")
    return code


def vectors_at(build: Any, pointer: Any, size: int) -> list[Any]:
    """Where the vectors are that ``size`` columns fill; one column is no vector."""
    if size < LANES:
        return [pointer]
    places = [build.gep(pointer, [INT64(at)]) for at in range(0, size, LANES)]
    return [build.bitcast(place, ir.VectorType(FLOAT, LANES).as_pointer()) for place in places]


def add_scaled(build: Any, sums: list[Any], factor: Any, terms: list[Any]) -> None:
    """Where ``sums`` point to, add ``factor · terms``."""
    kind = terms[0].type
    factors = factor if kind == FLOAT else in_all_lanes(build, factor, kind)
    for total, term in zip(sums, terms, strict=True):
        # "contract": a · b + c may be rounded once, where the processor can do that
        product = build.fmul(factors, term, flags=("contract",))
        added = build.fadd(build.load(total, align=4), product, flags=("contract",))
        build.store(added, total, align=4)


def in_all_lanes(build: Any, value: Any, kind: Any) -> Any:
    """A vector that has ``value`` in every lane."""
    nothing = ir.Constant(kind, ir.Undefined)
    zeros = ir.Constant(ir.VectorType(INT32, LANES), [0] * LANES)
    return build.shuffle_vector(build.insert_element(nothing, value, INT32(0)), nothing, zeros)
