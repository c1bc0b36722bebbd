"""What is computed: a package for every family of methods, a plug-in object for every method."""
