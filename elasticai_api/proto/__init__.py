"""Generated from the .proto files beside it (`make proto`)."""
