"""What the controller answers over HTTP: probes, metrics, and the questions of the API server's admission."""
