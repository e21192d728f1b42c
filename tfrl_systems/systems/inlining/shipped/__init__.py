"""The policy that comes with the installation: verbs take it if no other is named.

policy.json says what it was trained on and with which settings, and made_by.json by which command,
and what it saves in projects that it was not trained on.
"""

import pathlib

NAME = "shipped"
DIRECTORY = pathlib.Path(__file__).parent
