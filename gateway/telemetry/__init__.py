"""What operators' tools are told: Prometheus metrics, and how the upstreams fare.

Counters are moved at the end of a request, where its books are closed. No label is a name that a
client chooses. Imports only the memory's public names, and nothing of the packages that use it.
"""
