"""Small changes of a function's source, one at a time: what a slip of the pen would do."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping

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
#: What an expression may become, in the place of the function called (True) or in any other.
Changes = Callable[[ast.expr, bool], Iterator[ast.expr]]


@attrs.frozen
class Mutant:
    """One change of one function."""

    #: Module of the package that is mutated, and function at its top level, or `Class.method`.
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
    """The functions at the top level of a module's source, and the methods, without docstrings and annotations."""
    found = {}
    for node in ast.parse(source, module).body:
        for name, function in _inside(node):
            function.decorator_list = []  # what runs is under its decorators; those of functions in it belong to it
            found[name] = ast.fix_missing_locations(_Bare().visit(function))
    return found


def _inside(node: ast.stmt) -> Iterator[tuple[str, ast.FunctionDef]]:
    if isinstance(node, ast.FunctionDef):
        yield node.name, node
    elif isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.FunctionDef):
                yield f"{node.name}.{inner.name}", inner


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
        if node.value is None:
            return ast.Pass()
        return self.generic_visit(ast.Assign([node.target], node.value))


def mutants(module: str, name: str, function: ast.FunctionDef, changes: Changes) -> Iterator[Mutant]:
    """Every change of an expression of a function."""
    numbered = Numbered(module, name, ast.unparse(function))
    for holder, field, index, node in _places(function):
        was = ast.unparse(node)
        for new in changes(node, field == "func"):
            _put(holder, field, index, ast.fix_missing_locations(ast.copy_location(new, node)))
            source, now = ast.unparse(function), ast.unparse(new)
            _put(holder, field, index, node)
            yield from numbered(was, now, source)


class Numbered:
    """Makes the mutants of a function: of equal changes each gets a number, and what changes nothing is none."""

    def __init__(self, module: str, name: str, whole: str) -> None:
        """`whole`: the source of the function as it is."""
        self.module, self.name, self.whole = module, name, whole
        self.seen: dict[tuple[str, str], int] = {}

    def __call__(self, was: str, now: str, source: str) -> Iterator[Mutant]:
        """The mutant of this change, if it is one."""
        if source != self.whole:
            self.seen[was, now] = self.seen.get((was, now), 0) + 1
            yield Mutant(self.module, self.name, was, now, self.seen[was, now], source)


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


def arithmetic(node: ast.expr) -> Iterator[ast.expr]:
    """Operators, comparisons, connectives and numbers."""
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


def confused(node: ast.expr, other: Mapping[str, str]) -> Iterator[ast.expr]:
    """Names that somebody could confuse."""
    match node:
        case ast.Name(id) if id in other:
            yield ast.Name(other[id], node.ctx)
        case ast.Attribute(value, attr) if attr in other:
            yield ast.Attribute(value, other[attr], node.ctx)


def both_ways(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Each name of a pair for the other."""
    pairs = tuple(pairs)
    return {**dict(pairs), **{b: a for a, b in pairs}}
