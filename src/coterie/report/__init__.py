"""What a person looks at: pictures and a page, made from result files."""
