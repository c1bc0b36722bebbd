"""One protocol, one file: its messages, the site's part, the server's part, its cost."""
