"""What fits the model's window: frozen prompts (epochs), compaction, summaries, token counts.

Pure but for `compaction` and `summary`, which wait for a model's answer.
"""
