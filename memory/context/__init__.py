"""What fits the model's window: frozen prompts (epochs), compaction, summaries, token counts.

Pure except `compaction` and `summary`, which wait for a model's answer.
"""
