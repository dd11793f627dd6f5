package segment

// maxUnsynced bounds the bytes stored for writing again. Beyond it Append flushes.
const maxUnsynced = 8 << 20
