"""The console script, and `python -m segbroker.cli` for where it is not on the PATH.

Ctrl-C ends it with 130 from here on, also while the command is still being imported.
"""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from .main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
