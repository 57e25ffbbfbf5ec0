"""Context objects: all that a template of the admin portal may read. Building one runs the queries, rendering it runs none."""
