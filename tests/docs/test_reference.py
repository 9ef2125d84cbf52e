"""The pages of docs/reference are what the code gives: `make reference` writes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from elasticdl.dashboard.data.job_source import JobSource
from elasticdl.dashboard.server.access import Access, Guard
from elasticdl.dashboard.server.application import Dashboard
from elasticdl.errors import ExitCode
from tools.reference.dashboard_endpoints import endpoints
from tools.reference.environment import VARIABLES
from tools.reference.exit_codes import _MEANINGS
from tools.reference.pages import PAGES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|PATH|CXX|KUBECONFIG|PYTHONPATH")
# Set for other programs, or never seen by a user.
_INTERNAL = {
    "COLUMNS",
    "GRPC_VERBOSITY",
    "KUBERNETES_SERVICE_PORT",
    "MKL_DEBUG_CPU_TYPE",
    "PYTHONUNBUFFERED",
    "SSH_CONNECTION",
}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_what_the_code_gives(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "`make reference` writes it"


def test_every_page_of_the_folder_is_generated() -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == set(PAGES)


def test_every_exit_code_is_described() -> None:
    assert set(_MEANINGS) == set(ExitCode)


def _read_variables() -> Iterator[str]:
    """Names of variables that the code reads: `environ[NAME]`, `environ.get(NAME)`, with constants of the same file."""
    for folder in ("elasticdl", "elasticai_api"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "environ" not in text:
                continue
            tree = ast.parse(text)
            constants = {
                node.targets[0].id: node.value.value
                for node in tree.body
                if isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            }
            for node in ast.walk(tree):
                key: ast.expr | None = None
                if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
                    key = node.slice
                elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("environ.get"):
                    key = node.args[0]
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value
                elif isinstance(key, ast.Name) and key.id in constants:
                    yield constants[key.id]


def test_every_variable_that_is_read_is_described() -> None:
    described = {name for variables in VARIABLES.values() for name in variables}
    assert set(_read_variables()) - described - _INTERNAL == set()


def test_every_described_variable_is_in_the_code() -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("elasticdl", "elasticai_api", "build_backend")
        for path in (ROOT / folder).rglob("*.py")
    )
    described = {name for variables in VARIABLES.values() for name in variables}
    assert {name for name in described if name not in code} == set()


def test_endpoints_are_the_routes_of_the_application() -> None:
    access = Access(
        token="t" * 32, scheme="http", port=1, hosts=frozenset(), any_address=False, allows_actions=False
    )
    guard = cast(Guard, Dashboard(JobSource(), access).application())
    routes = [
        (("POST" if "POST" in (route.methods or ()) else "GET"), route.path)
        for route in cast(Starlette, guard._app).routes
        if isinstance(route, Route) and route.path.startswith("/api/")
    ]
    documented = [(method, re.sub(r"NAME", "{name}", path)) for method, path, _ in endpoints()]
    assert sorted(documented) == sorted(
        (method, path.replace("{action}", "ACTION")) for method, path in routes
    )
