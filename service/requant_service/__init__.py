"""The HTTP and gRPC service: wire bytes in, `requant` for every decision about numbers, wire bytes out."""
