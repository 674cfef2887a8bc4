"""The dashboard at `/ui`: pages made on the server, which work without JavaScript for reading.

Its handlers use the functions of the management API, so there is no second way to the data. May
import `management` and what is below it.
"""
