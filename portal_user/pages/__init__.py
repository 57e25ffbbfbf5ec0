"""What templates may read, built before they are rendered: rendering runs no query."""
