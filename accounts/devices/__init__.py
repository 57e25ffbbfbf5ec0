"""Signs a terminal in by the device flow of RFC 8628: it shows a code, and a person who is signed in confirms that on a page."""
