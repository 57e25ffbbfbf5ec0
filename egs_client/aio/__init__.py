"""This is the async half of the SDK. `make client` writes the other half, `egs_client/sync`, from it."""
