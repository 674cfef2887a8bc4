"""Tables and the transactions on them, one module a subject. Everything durable is here.

May import the pure packages of `memory`, and nothing above `stores`.
"""
