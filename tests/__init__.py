"""Tests, by kind: unit, property, golden, interop, tidy."""
