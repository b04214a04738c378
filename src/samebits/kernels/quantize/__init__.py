"""Quantisation to block formats: `formats` and `dialects` are rows, `reference` is what they mean."""
