"""`python -m segbroker.cli`, for where the script is not on the PATH."""

from .main import main

if __name__ == "__main__":
    main()
