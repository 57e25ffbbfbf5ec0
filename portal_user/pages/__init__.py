"""Context objects of templates. Rendering runs no query."""
