"""Writes what the Python SDK `egs_client` has from elsewhere: models and operations from OpenAPI, the sync half from the async one."""
