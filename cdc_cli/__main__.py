"""``python -m cdc_cli`` is ``cdc``."""

from . import main

if __name__ == "__main__":
    main()
