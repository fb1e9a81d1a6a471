"""What goes on record about one request: a document for people, the proof, and what it takes to check both."""
