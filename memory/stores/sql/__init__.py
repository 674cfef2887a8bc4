"""Tables and the transactions on them, one module for each subject. Everything durable is here.

May import the pure packages of `memory`, and nothing above `stores`.
"""
