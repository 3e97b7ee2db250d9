"""``python -m fedsage``: the command line, where its script is not on the path."""

from fedsage.cli.main import main

if __name__ == "__main__":
    main()
