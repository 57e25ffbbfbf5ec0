"""What every REST endpoint shares: problem documents, paging, fields that take an id or a name. Knows no app."""
