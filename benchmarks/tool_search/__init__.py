"""Quality and cost of tool search: the share of right tools at rank one and in the first five, and the time at 1,000 tools."""
