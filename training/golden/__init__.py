"""Golden vectors: intermediate values of the reference, for check-golden and the tests."""
