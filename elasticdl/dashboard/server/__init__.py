"""The HTTP server of the pages: who may ask, the routes, live updates, actions. Needs starlette and uvicorn."""
