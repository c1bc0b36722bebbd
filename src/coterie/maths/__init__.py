"""Arrays in, arrays out. Nothing here knows of sites, messages or files."""
