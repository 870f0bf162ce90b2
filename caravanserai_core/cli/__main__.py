"""`python -m caravanserai_core.cli` is `caravanserai`."""

from caravanserai_core.cli import main

main()
