"""What a slip of the pen makes of a condition: of its numbers, names, members, filters and statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from preempt_properties.mutants.operators import Mutant, Numbered, arithmetic, both_ways, confused, mutants

#: Names that somebody could confuse.
_CONFUSED = both_ways(
    (
        ("max", "min"),
        ("any", "all"),
        ("running", "waiting"),
        ("granted", "entered"),
        ("demoted", "requeued"),
        ("tokens", "prompt"),
        ("start", "upto"),
        ("need", "supply"),
        ("host_free", "free"),
    )
)
#: Members of enumerations: class -> member -> another.
_MEMBERS = {
    "Place": {
        "RUNNING": "WAITING",
        "WAITING": "RUNNING",
        "SWAPPED": "WAITING",
        "LOADING": "WAITING",
        "LIMBO": "WAITING",
    },
    "Fate": {"LIVE": "DELIVER", "DELIVER": "LIVE", "DROP": "GONE", "GONE": "DROP"},
}
_SETS: dict[type[ast.operator], type[ast.operator]] = {
    ast.BitXor: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


def changes(node: ast.expr, called: bool) -> Iterator[ast.expr]:
    """The changes of an expression."""
    if isinstance(node, ast.BinOp) and isinstance(node.left, ast.JoinedStr):
        return  # words
    yield from arithmetic(node)
    yield from confused(node, _CONFUSED)
    match node:
        case ast.Compare(left, [ast.In()], right):
            yield ast.Compare(left, [ast.NotIn()], right)
        case ast.Compare(left, [ast.NotIn()], right):
            yield ast.Compare(left, [ast.In()], right)
        case ast.Compare(left, [first, second], [middle, right]):
            yield ast.Compare(left, [first], [middle])
            yield ast.Compare(middle, [second], [right])
        case ast.BoolOp(op, [one, other]):
            yield from (one, other)
        case ast.BoolOp(op, values):
            yield from (ast.BoolOp(op, [*values[:i], *values[i + 1 :]]) for i in range(len(values)))
        case ast.BinOp(left, op, right) if type(op) in _SETS:
            yield ast.BinOp(left, _SETS[type(op)](), right)
        case ast.Attribute(ast.Name(cls), member) if member in _MEMBERS.get(cls, {}):
            yield ast.Attribute(ast.Name(cls, ast.Load()), _MEMBERS[cls][member], ast.Load())
        case ast.Yield(ast.IfExp() as value):
            yield ast.Yield(ast.Constant(None))
            yield from (ast.Yield(part) for part in (value.body, value.orelse) if not _none(part))
        case ast.Yield(value) if value is not None and not _none(value):
            yield ast.Yield(ast.Constant(None))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            yield from _unfiltered(node)


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _unfiltered(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Iterator[ast.expr]:
    """Without each of the conditions of a comprehension."""
    for i, loop in enumerate(node.generators):
        for j in range(len(loop.ifs)):
            less = ast.comprehension(loop.target, loop.iter, [*loop.ifs[:j], *loop.ifs[j + 1 :]], loop.is_async)
            fields = {name: value for name, value in ast.iter_fields(node) if name != "generators"}
            yield type(node)(**fields, generators=[*node.generators[:i], less, *node.generators[i + 1 :]])


def every(module: str, name: str, function: ast.FunctionDef) -> Iterator[Mutant]:
    """Every change of a function: of its expressions, then of its statements."""
    yield from mutants(module, name, function, changes)
    numbered = Numbered(module, name, ast.unparse(function))
    for block, i, new, was, now in [*_statements(function)]:
        old, block[i] = block[i], ast.fix_missing_locations(ast.copy_location(new, block[i]))
        source = ast.unparse(function)
        block[i] = old
        yield from numbered(was, now, source)


def _statements(node: ast.AST) -> Iterator[tuple[list[ast.stmt], int, ast.stmt, str, str]]:
    """A block, the index of a statement, what stands there instead, and both in words."""
    for _, value in ast.iter_fields(node):
        if not (isinstance(value, list) and value):
            continue
        for i, child in enumerate(value):
            match child:
                case ast.If(test, body, orelse):
                    said = f"if {ast.unparse(test)}"
                    yield value, i, ast.If(ast.Constant(True), body, orelse), said, "if True"
                    yield value, i, ast.If(ast.Constant(False), body, orelse), said, "if False"
                case (
                    ast.Continue()
                    | ast.Break()
                    | ast.AugAssign()
                    | ast.Expr(ast.Call() | ast.Yield(ast.Constant(None)))
                ):
                    yield value, i, ast.Pass(), ast.unparse(child), "pass"
                case ast.Return(None):
                    yield value, i, ast.Pass(), "return", "pass"
                case ast.Assign([ast.Attribute() | ast.Subscript()]):
                    yield value, i, ast.Pass(), ast.unparse(child), "pass"
            if isinstance(child, ast.stmt | ast.match_case | ast.ExceptHandler):
                yield from _statements(child)
