"""One turn with memory: what is read for it, what is sent, and what is recorded.

May import everything of `memory` but `service`.
"""
