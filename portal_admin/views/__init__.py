"""Views read the URL or a form, call a service or build a context object, and answer."""
