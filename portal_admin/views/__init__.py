"""Thin views: read the URL or a form, call a service or build a context object, answer a page, a fragment or a redirect."""
