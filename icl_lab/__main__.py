"""``python -m icl_lab``: the command line."""

from icl_lab.cli.main import main

if __name__ == "__main__":
    main()
