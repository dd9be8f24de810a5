"""Every change of one place that a source allows, for mutation testing (tests/soak/mutations.py).

| kind | what becomes of it |
|---|---|
| border | `<` is `<=`, `==` is `!=`, `in` is `not in` ... |
| condition left out | of `a and b` one alone |
| turned round | `if a` is `if not a`, `while` as well; `return True` is `return False` |
| one off | a sum or a difference is one more |
| one of many | `max(a, b)` is `a` |
| left out | a call for its effect, a field that is set or counted up, a `raise` |

Assertions and lines for the log are left alone, and so are names with two underscores: what
__init__ leaves out shows itself at once.
"""

import ast
from typing import NamedTuple

_BORDERS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


_LEVELS = ("debug", "info", "warning", "error", "exception")


class Place(NamedTuple):
    """A change: the source from `begin` to `end` becomes `text`."""

    kind: str
    function: str
    """The outermost function that it is in, by its qualified name."""
    begin: int
    end: int
    text: str

    def changed(self, source: str) -> str:
        """The whole source with it."""
        return source[: self.begin] + self.text + source[self.end :]


def places(source: str) -> list[Place]:
    """All of them, in the order of the source, which is ASCII."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self._begins = [0]
        for line in source.splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))
        self._owners: list[str] = []
        self._function = ""
        self.found: list[Place] = []

    def _add(self, kind: str, node: ast.expr | ast.stmt, new: ast.expr | str) -> None:
        assert node.end_lineno is not None, "parsed from text"
        assert node.end_col_offset is not None, "parsed from text"
        if not self._function:
            return
        text = new if isinstance(new, str) else f"({ast.unparse(new)})"
        begin = self._begins[node.lineno - 1] + node.col_offset
        end = self._begins[node.end_lineno - 1] + node.end_col_offset
        self.found.append(Place(kind, self._function, begin, end, text))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._owners.append(node.name)
        self.generic_visit(node)
        self._owners.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        is_outermost = not self._function
        if node.name.startswith("__"):
            return
        if is_outermost:
            self._function = ".".join((*self._owners, node.name))
        for statement in node.body:
            self.visit(statement)
        if is_outermost:
            self._function = ""

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            other = _BORDERS[type(node.ops[0])]
            self._add("border", node, ast.Compare(node.left, [other()], node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for place in range(len(node.values)):
            rest = [value for number, value in enumerate(node.values) if number != place]
            new = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            self._add("condition left out", node, new)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._turn_round(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._turn_round(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._turn_round(node.test)
        self.generic_visit(node)

    def _turn_round(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare) or len(test.ops) > 1 or _is_ordered(test.ops[0]):
            self._add("turned round", test, ast.UnaryOp(ast.Not(), test))  # else it is a border

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
            self._add("turned round", node.value, ast.Constant(not node.value.value))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and not isinstance(node.left, ast.Constant):
            self._add("one off", node, ast.BinOp(node, ast.Add(), ast.Constant(1)))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("max", "min") and node.args:
            self._add("one of many", node, node.args[0])
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not _is_said(node.value.func):
            self._add("left out", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add("left out", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("left out", node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add("left out", node, "pass")
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Nothing in it: an assertion that is gone is no bug."""


def _is_ordered(operator: ast.cmpop) -> bool:
    return isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)


def _is_said(function: ast.expr) -> bool:
    """Whether a call is a line for the log."""
    name = ast.unparse(function)
    return name.startswith(("log.", "logger.")) and name.partition(".")[2] in _LEVELS
