"""What is known of models: windows, prices and tokenizers, and the list that `/v1/models` gives.

May import `config`, `wire` and `errors`.
"""
