"""`python -m delta_trl`, and on several processes `accelerate launch -m delta_trl train`."""

import sys

from .cli import main


sys.exit(main())
