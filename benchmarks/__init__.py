"""Benchmarks: what a waypoint costs, measured beside what else could be done instead."""
