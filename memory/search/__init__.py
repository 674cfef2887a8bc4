"""What a query means to the index: words, dates, ranking, similarity. Pure."""
