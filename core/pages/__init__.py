"""Parts of pages that know no app: axes, strips, tables, and words for times and numbers."""
