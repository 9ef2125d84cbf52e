"""Finds the folder that `--model_zoo` names.

`elasticdl.zoo` is the zoo that comes with elasticdl: a package of the wheel, and the folder `model_zoo` in a checkout.
The name stays in the job specification and is resolved on each node, since nodes install elasticdl at different places.
"""

from __future__ import annotations

from pathlib import Path

from elasticdl.errors import UserError

INSTALLED = "elasticdl.zoo"
_PACKAGE = Path(__file__).resolve().parent.parent


def zoo_folder(model_zoo: str) -> Path:
    """Returns the existing folder, or raises `UserError`. A folder of the user's with that name comes first."""
    folder = Path(model_zoo).expanduser()
    if folder.is_dir():
        return folder
    if model_zoo == INSTALLED:
        for place in (_PACKAGE / "zoo", _PACKAGE.parent / "model_zoo"):
            if place.is_dir():
                return place
    raise UserError(
        f"There is no model zoo folder {folder}.",
        hint=f"Give an existing folder with --model_zoo, or {INSTALLED} for the models that come with elasticdl.",
    )
