"""A fake cluster for the checks of one."""

from tests.catalog.api_server import api as api
