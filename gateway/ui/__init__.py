"""The dashboard at `/ui`: pages rendered on the server; reading needs no JavaScript.

Its handlers call the functions of the management API, so there is one way to the data. May import
`management` and the layers below it.
"""
