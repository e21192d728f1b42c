"""The policy that comes with the installation; `tfrl optimize` tries its steps first.

policy.json says what it was trained on and with which settings, and made_by.json by which command,
and what its steps save in models that it was not trained on.
"""

import pathlib

NAME = "shipped"
DIRECTORY = pathlib.Path(__file__).parent
