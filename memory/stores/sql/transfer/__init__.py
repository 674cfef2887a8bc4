"""Memory that goes elsewhere or comes from there: exports, imports, copies, backups."""
