"""The verify page: a second implementation of the verification, in JavaScript, as one file that needs no network."""
