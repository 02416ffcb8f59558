"""Taps of torch."""
