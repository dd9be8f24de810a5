"""A function under construction: lines of Python, constants they refer to, fresh names.

Used by the two compilers of message codecs.  Nothing in it comes off the wire: the text depends on
the message tables alone.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["Source"]


class Source:
    """The body of one function; `add` appends a line at the present `depth`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.scope: dict[str, Any] = {}
        self.count = 0

    def add(self, line: str) -> None:
        self.lines.append(" " * self.depth + line)

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, prefix: str, value: object) -> str:
        name = self.name(prefix)
        self.scope[name] = value
        return name

    def function(self, name: str, arguments: str) -> Callable[..., Any]:
        """Compile what was added so far as the body of `name`."""
        exec("\n".join([f"def {name}({arguments}):", *self.lines]), self.scope)
        function: Callable[..., Any] = self.scope[name]
        return function
