"""What is searched beside the rows: words, stems, vectors, and what is still to be indexed."""
