"""The snippets of a page that are Python."""

import re
from textwrap import dedent
from typing import Final

_SNIPPET: Final = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def snippets(page: str) -> list[str]:
    """Those of the text of a page, in the order in which they stand."""
    return [dedent(found) for found in _SNIPPET.findall(page)]
