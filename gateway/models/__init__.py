"""What is known of models: context windows, prices, tokenizers, and the list for `/v1/models`.

May import `config`, `wire` and `errors`.
"""
