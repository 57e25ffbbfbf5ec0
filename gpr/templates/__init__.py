"""Templates: fields of a request that users reuse, and the template that pods without a request are given."""
