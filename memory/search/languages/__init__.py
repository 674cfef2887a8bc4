"""Words that decide meaning, by language (ISO 639-1): data, no code.

English, German, French, Spanish, Portuguese, Russian, Hindi, Arabic, Japanese and Chinese are
tested; others pass every filter, since what is unsure is let through.
"""
