"""Which NodeClaims pods need, and how long pods are collected before that is decided."""
