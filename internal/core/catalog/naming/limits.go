package naming

// maxIDBytes is the length to which a long derived id is cut before its hash is appended.
const maxIDBytes = 111
