"""Agent sessions: started, worked in, followed, handed on, ended, swept (D-53, D-62)."""
