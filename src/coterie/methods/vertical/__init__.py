"""Methods for rows whose columns are at several sites."""
