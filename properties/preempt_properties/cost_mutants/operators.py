"""Small changes of a function's source, one at a time: what a slip of the pen would do to a formula."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import attrs

_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
#: Comparison -> its boundary moved, and turned around.
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
#: Names that somebody could confuse.
_CONFUSED = (
    ("max", "min"),
    ("round_up", "round_down"),
    ("ceil", "floor"),
    ("gemm_efficiency", "attention_efficiency"),
    ("gemm_rate", "attention_rate"),
    ("out", "back"),
    ("heads", "kv_heads"),
    ("key_dim", "value_dim"),
    ("params_active", "params_total"),
    ("kv_bytes", "pair_flops"),
    ("small", "large"),
    ("swap_cost", "recompute_cost"),
    ("kv_width", "weight_width"),
    ("any", "all"),
)
_OTHER = {**dict(_CONFUSED), **{b: a for a, b in _CONFUSED}}
#: A parameter of many functions whose default, 0, is a mistake of its own: the prefix hit is ignored.
_IGNORABLE = "cached"


@attrs.frozen
class Mutant:
    """One change of one function."""

    #: Module of the cost package, and function at its top level.
    module: str
    function: str
    #: What was, and what is instead, as source; of equal changes in one function, which.
    was: str
    now: str
    number: int
    #: The whole function, changed.
    source: str
    #: What mistake it is, if it is a well-known one.
    name: str = ""

    @property
    def id(self) -> str:
        """Stable as long as the changed piece of source is: no line numbers."""
        again = f" #{self.number}" if self.number > 1 else ""
        return f"{self.module}.{self.function}: {self.was} → {self.now}{again}"


def functions(module: str, source: str) -> dict[str, ast.FunctionDef]:
    """The functions at the top level of a module's source, without docstrings and annotations."""
    found = {}
    for node in ast.parse(source, module).body:
        if isinstance(node, ast.FunctionDef):
            bare = _Bare().visit(node)
            found[node.name] = ast.fix_missing_locations(bare)
    return found


class _Bare(ast.NodeTransformer):
    """Takes off what is no formula."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None
        return self.generic_visit(ast.Assign([node.target], node.value))


def mutants(module: str, name: str, function: ast.FunctionDef) -> Iterator[Mutant]:
    """Every change of a function."""
    seen: dict[tuple[str, str], int] = {}
    whole = ast.unparse(function)
    for holder, field, index, node in _places(function):
        was = ast.unparse(node)
        for new in _changes(node, called=field == "func"):
            _put(holder, field, index, ast.fix_missing_locations(ast.copy_location(new, node)))
            source, now = ast.unparse(function), ast.unparse(new)
            _put(holder, field, index, node)
            if source != whole:
                seen[was, now] = seen.get((was, now), 0) + 1
                yield Mutant(module, name, was, now, seen[was, now], source)


def _places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.expr]]:
    """Every expression of a function and where it stands; not what only words an error message."""
    for field, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Raise):
                continue
            stored = isinstance(getattr(child, "ctx", None), ast.Store)
            if isinstance(child, ast.expr) and not stored and not _zero(node, field):
                yield node, field, index, child
            if not _zero(node, field):
                yield from _places(child)


def _zero(node: ast.AST, field: str) -> bool:
    """Whether this is the `x` of `0 * x`, the idiom for a zero of the right kind: any number does there."""
    match node:
        case ast.BinOp(ast.Constant(0), ast.Mult()):
            return field == "right"
    return False


def _put(holder: ast.AST, field: str, index: int | None, node: ast.expr) -> None:
    if index is None:
        setattr(holder, field, node)
    else:
        getattr(holder, field)[index] = node


def _changes(node: ast.expr, *, called: bool) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(ast.Constant(0), ast.Mult()):
            pass  # the same idiom: divided, it is the same zero
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
            yield ast.BinOp(left, _ARITHMETIC[type(op)](), right)
            if isinstance(op, ast.Add | ast.Sub):
                yield left
            if isinstance(op, ast.Add):
                yield right
        case ast.Compare(left, [op], [right]):
            for other in _COMPARED.get(type(op), ()):
                yield ast.Compare(left, [other()], [right])
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(value) if type(value) is int:
            yield ast.Constant(value + 1)
            if value > 0:
                yield ast.Constant(value - 1)
        case ast.Constant(value) if type(value) is bool:
            yield ast.Constant(not value)
        case ast.Name(id) if id == _IGNORABLE and not called:
            yield ast.Constant(0)
        case ast.Name(id) if id in _OTHER:
            yield ast.Name(_OTHER[id], node.ctx)
        case ast.Attribute(value, attr) if attr in _OTHER:
            yield ast.Attribute(value, _OTHER[attr], node.ctx)
