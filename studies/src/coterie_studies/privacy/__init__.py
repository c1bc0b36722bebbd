"""The study of differentially private runs: what noise costs."""
