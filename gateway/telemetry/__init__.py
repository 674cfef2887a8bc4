"""Data for operators' tools: Prometheus metrics, traces, and how the upstreams perform.

Counters are updated at the end of a request, together with its usage record. No label is a name
that a client chooses. Imports only the memory's public names, and none of the packages that use it.
"""
