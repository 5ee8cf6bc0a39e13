"""Behind `dovetail roll`: which NodeClaims are meant, the writes, and the progress."""
