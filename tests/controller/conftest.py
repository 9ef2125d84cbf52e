from __future__ import annotations

from tests.catalog.api_server import api as api
