"""The verify page: the verification written a second time, in JavaScript, as one file that needs no network."""
