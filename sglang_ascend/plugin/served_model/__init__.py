"""The package of models that SGLang's registry scans first: the classes of the served checkpoint.

SGLang imports every model file that it has, about 200, to find one class. Where
``SGLANG_EXTERNAL_MODEL_PACKAGE`` names a package, it looks there first and reads its own files only
for an architecture which is not in it; that variable is for models from outside, and here it leads
back to SGLang's own file of the architecture that ``config.json`` names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from sglang_ascend.deploy.architectures import OWN_PACKAGE

PACKAGE_ENV = "SGLANG_EXTERNAL_MODEL_PACKAGE"
ARCHITECTURES_ENV = "SGLANG_ASCEND_ARCHITECTURES"


def publish(model_folder: str, environ=os.environ) -> None:
    """Tell the processes started from here which classes to look for first.

    Does nothing where the user has a package of his own, or the folder no readable ``config.json``:
    SGLang then says what is wrong with it.
    """
    try:
        config = json.loads((Path(model_folder) / "config.json").read_text())
        architectures = ",".join(config["architectures"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if environ.setdefault(PACKAGE_ENV, OWN_PACKAGE) == OWN_PACKAGE:
        environ[ARCHITECTURES_ENV] = architectures
