"""The HTTP endpoints of the controller: probes, metrics, and the admission requests of the API server."""
