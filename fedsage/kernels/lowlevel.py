"""Code in LLVM's own language: prefetching, sums of rows, the nearest node.

A row of sparse × dense, or of dense × dense, is a sum of rows of the second table. Written as
two loops, LLVM stores that sum and loads it again for every row it adds, and takes four times
as long. Here it is made to hold the sum in vectors. They are generic LLVM vectors: they become
AVX, SSE or NEON.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

LINE = 16  # numbers of four bytes in a cache line
LANES = 8  # of a vector
FAR = 300_000  # numbers in a table too large for the nearest caches
BLOCKS = (8 * LANES, 4 * LANES, LANES, 1)  # columns at a time, as many as are left
WIDTHS = (80, 64, 48, 32, 16)  # columns searched at a time: at most what registers can hold
ROWS_AHEAD, SEARCH_AHEAD = 6, 16  # how many rows earlier a row is prefetched
INT32, INT64, FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOATS, INTEGERS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT32, LANES)
blocks: Any = cgutils  # neither has types
intrinsic: Any = extending.intrinsic

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@intrinsic
def prefetch(typing, array, at):
    """Prefetch ``array.flat[at]``, which will be read soon."""

    def codegen(context, build, signature, args):
        data = context.make_array(signature.args[0])(context, build, args[0]).data
        fetch_line(build, build.gep(data, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


def fetch_line(build: Any, pointer: Any) -> None:
    """Prefetch the cache line at ``pointer``."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, INT32, INT32, INT32])
    fetch = blocks.get_or_insert_function(build.module, kind, "llvm.prefetch.p0i8")
    to_read, keep, data = INT32(0), INT32(3), INT32(1)
    build.call(fetch, [build.bitcast(pointer, byte), to_read, keep, data])


@intrinsic
def add_rows(typing, out, i, picked, scale, first, stride, start, end, table):
    """``out[i] += Σ_e scale.flat[first + e · stride] · table[picked[e]]``, e from ``start``.

    Args:
        typing: Passed by numba; not an argument of calls.
        out: A table as wide as ``table``; both float32, in C order.
        i: The row to add to.
        picked: int32, which rows of ``table``; None for row e itself.
        scale: float32, the factor of each row.
        first: Where ``scale`` begins.
        stride: From one factor to the next.
        start: The first e.
        end: One more than the last e.
        table: The rows.
    """

    def codegen(context, build, signature, args):
        call_row_code(context, build, signature, args, "gather")
        return context.get_dummy_value()

    return types.void(out, i, picked, scale, first, stride, start, end, table), codegen


@intrinsic
def spread_row(typing, row, i, picked, scale, first, stride, start, end, out):
    """``out[picked[e]] += scale.flat[first + e · stride] · row[i]``: ``add_rows`` backwards."""

    def codegen(context, build, signature, args):
        call_row_code(context, build, signature, args, "scatter")
        return context.get_dummy_value()

    return types.void(row, i, picked, scale, first, stride, start, end, out), codegen


def call_row_code(context: Any, build: Any, signature: Any, args: Any, way: str) -> None:
    """Call the code for one row, with what numba knows about the arguments."""

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

    With ``fetches`` it prefetches each row some rows ahead. That pays off if rows come from
    far memory, or are written; otherwise it is wasted work.
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
    """A separate function, so that it is compiled once; a declaration if it is new."""
    kind = ir.FunctionType(ir.VoidType(), given)
    code = blocks.get_or_insert_function(module, kind, name)
    if code.is_declaration:
        code.linkage = "linkonce_odr"
        code.attributes.add("noinline")
    return code


def vectors_at(build: Any, pointer: Any, size: int) -> list[Any]:
    """Pointers to the vectors that ``size`` columns fill; one column is a scalar."""
    if size < LANES:
        return [pointer]
    places = [build.gep(pointer, [INT64(at)]) for at in range(0, size, LANES)]
    return [build.bitcast(place, FLOATS.as_pointer()) for place in places]


def add_scaled(build: Any, sums: list[Any], factor: Any, terms: list[Any]) -> None:
    """Add ``factor · terms`` to what ``sums`` point to."""
    kind = terms[0].type
    factors = factor if kind == FLOAT else in_all_lanes(build, factor, kind)
    for total, term in zip(sums, terms, strict=True):
        # "contract": a · b + c may be rounded once, if the processor can do that
        product = build.fmul(factors, term, flags=("contract",))
        added = build.fadd(build.load(total, align=4), product, flags=("contract",))
        build.store(added, total, align=4)


def in_all_lanes(build: Any, value: Any, kind: Any) -> Any:
    """A vector that has ``value`` in every lane."""
    nothing = ir.Constant(kind, ir.Undefined)
    zeros = ir.Constant(INTEGERS, [0] * LANES)
    return build.shuffle_vector(build.insert_element(nothing, value, INT32(0)), nothing, zeros)


@intrinsic
def keep_nearest(typing, indptr, indices, data, halves, table, start, width, best, found):
    """For some columns of ``table``, the node u with the largest s_u, the first if equal.

    Args:
        typing: Passed by numba; not an argument of calls.
        indptr: int64; where each node's features begin, and the end of the last.
        indices: int32, which features.
        data: float32, their values.
        halves: ½‖x_u‖² of every node.
        table: float32, one column for each g.
        start: The first of the columns.
        width: How many: one of ``WIDTHS``.
        best: float32, as long as ``table`` is wide: the largest s_u so far.
        found: int32, the u with that s_u.
    """

    def codegen(context, build, signature, args):
        def array(n: int) -> Any:
            return context.make_array(signature.args[n])(context, build, args[n])

        count = build.extract_value(array(3).shape, 0)
        stride = build.extract_value(array(4).shape, 1)
        first = context.cast(build, args[5], signature.args[5], types.int64)
        chosen = context.cast(build, args[6], signature.args[6], types.int64)
        given = [array(n).data for n in range(4)]
        given += [build.gep(array(n).data, [first]) for n in (4, 7, 8)]
        for size in WIDTHS:
            with build.if_then(build.icmp_signed("==", chosen, INT64(size))):
                build.call(column_code(build.module, size), [*given, count, stride])
        return context.get_dummy_value()

    return types.void(indptr, indices, data, halves, table, start, width, best, found), codegen


def column_code(module: Any, size: int) -> Any:
    """The code behind it for ``size`` columns."""
    floats, whole = FLOAT.as_pointer(), INT32.as_pointer()
    given = [INT64.as_pointer(), whole, floats, floats, floats, floats, whole, INT64, INT64]
    code = own_function(module, f"fedsage_nearest_{size}", given)
    if not code.is_declaration:
        return code
    indptr, indices, data, halves, table, best, found, count, stride = code.args
    build = ir.IRBuilder(code.append_basic_block("entry"))
    last = build.sub(build.load(build.gep(indptr, [count])), INT64(1))
    sums = [blocks.alloca_once(build, FLOATS) for _ in range(0, size, LANES)]
    room = blocks.alloca_once(build, ir.ArrayType(FLOATS, len(sums)))

    def row_of(e: Any) -> Any:
        row = build.zext(build.load(build.gep(indices, [e])), INT64)
        return build.gep(table, [build.mul(row, stride)])

    with blocks.for_range(build, count) as nodes:
        u = nodes.index
        begin, end = (build.load(build.gep(indptr, [build.add(u, INT64(k))])) for k in (0, 1))
        half = build.fneg(build.load(build.gep(halves, [u])))
        for total in sums:
            build.store(in_all_lanes(build, half, FLOATS), total)
        with blocks.for_range(build, end, begin) as features:
            e = features.index
            soon = build.add(e, INT64(SEARCH_AHEAD))
            soon = row_of(build.select(build.icmp_signed("<", soon, last), soon, last))
            for line in range(0, size, LINE):
                fetch_line(build, build.gep(soon, [INT64(line)]))
            terms = [build.load(each, align=4) for each in vectors_at(build, row_of(e), size)]
            add_scaled(build, sums, build.load(build.gep(data, [e])), terms)
        totals = [build.load(total) for total in sums]
        with build.if_then(any_larger(build, totals, vectors_at(build, best, size))):
            for n, total in enumerate(totals):
                build.store(total, build.gep(room, [INT32(0), INT32(n)]))
            given = [build.trunc(u, INT32), build.bitcast(room, floats), best, found]
            build.call(exchange_code(build.module, size), given)
    build.ret_void()
    return code


def any_larger(build: Any, totals: list[Any], bests: list[Any]) -> Any:
    """Whether any of ``totals`` is larger than the best so far."""
    larger = None
    for total, best in zip(totals, bests, strict=True):
        here = build.fcmp_ordered(">", total, build.load(best, align=4))
        larger = here if larger is None else build.or_(larger, here)
    lanes = ir.IntType(LANES)
    return build.icmp_unsigned("!=", build.bitcast(larger, lanes), lanes(0))


def exchange_code(module: Any, size: int) -> Any:
    """Keep u if its sums are larger than the best so far: a rare case, out of the hot loop."""
    floats, whole = FLOAT.as_pointer(), INT32.as_pointer()
    code = own_function(module, f"fedsage_larger_{size}", [INT32, floats, floats, whole])
    if not code.is_declaration:
        return code
    build = ir.IRBuilder(code.append_basic_block("entry"))
    u = in_all_lanes(build, code.args[0], INTEGERS)
    for at in range(0, size, LANES):
        total, best, found = (build.gep(each, [INT64(at)]) for each in code.args[1:])
        total, best = (build.bitcast(each, FLOATS.as_pointer()) for each in (total, best))
        found = build.bitcast(found, INTEGERS.as_pointer())
        new, old, node = (build.load(each, align=4) for each in (total, best, found))
        larger = build.fcmp_ordered(">", new, old)
        build.store(build.select(larger, new, old), best, align=4)
        build.store(build.select(larger, u, node), found, align=4)
    build.ret_void()
    return code
