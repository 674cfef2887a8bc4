"""A small rule-based model that stands in for a provider in the demo and in examples.

Stands alone: it may import `wire` and `errors`, and nothing of the gateway imports it but `cli`.
"""
