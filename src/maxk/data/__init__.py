"""Datasets: one module a source, all behind `load`."""
