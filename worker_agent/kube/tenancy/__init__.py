"""The namespaces of workspaces: their binding, isolation and repair."""
