"""A server for unary gRPC calls over HTTP/2 without TLS, for the port of the public client.

The reason is in docs/decisions/0052-unary-http2-server.md. `frames` has the layout of frames, `header_blocks` encodes
and decodes headers, `connection` is the protocol of one connection, and `server` runs the calls.
"""
