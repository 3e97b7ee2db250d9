"""The search for the nearest node on sparse features, compiled: no table of distances.

With s_u = g·x_u − ½‖x_u‖² the squared distance ‖g − x_u‖² is ‖g‖² − 2 s_u: the nearest node
has the largest s_u. That sum is held in vectors, one lane for each g, as in ``fused_rows``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from fedsage.compiled import INT32, INT64, LINE, blocks, fetch_line, intrinsic, kept_on_disk
from fedsage.models.fused_cache import SOURCES_STAMP
from fedsage.models.fused_rows import (
    FLOAT,
    LANES,
    add_scaled,
    in_all_lanes,
    own_function,
    vectors_at,
)

WIDTHS = (80, 64, 48, 32, 16)  # columns at a time: at most as many as registers hold
ROWS_AHEAD = 16  # so much earlier a row of the table is asked for
FLOATS, INTEGERS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT32, LANES)

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@intrinsic
def keep_nearest(typing, indptr, indices, data, halves, table, start, width, best, found):
    """For some columns of ``table`` the node u with the largest s_u, the first of equals.

    Args:
        typing: Numba's; not an argument of calls.
        indptr: int64; where each node's features begin, and one more.
        indices: int32, which features.
        data: float32, their values.
        halves: ½‖x_u‖² of every node.
        table: float32, one column for each g.
        start: The first of the columns.
        width: How many: one of ``WIDTHS``.
        best: float32, as long as ``table`` is wide: the largest s_u so far.
        found: int32, the u that it is of.
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

    kinds = indptr, indices, data, halves, table, start, width, best, found
    return types.void(*kinds), codegen


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
            soon = build.add(e, INT64(ROWS_AHEAD))
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
    """Keep u where its sums are larger than the best so far: a rare case, out of the way."""
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


def with_stamp(stamp: int) -> Any:
    """The search, as a function that closes over ``stamp``; see ``kept_on_disk``."""

    def search(indptr, indices, data, halves, table, parts, best, found):
        """``keep_nearest`` for parts of the table: pairs of a start and a width."""
        for start, width in parts if stamp > 0 else parts[:0]:
            keep_nearest(indptr, indices, data, halves, table, start, width, best, found)

    return search


search = kept_on_disk(with_stamp(SOURCES_STAMP))
