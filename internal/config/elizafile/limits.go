package elizafile

// MaxFile is the size limit of each of the two files, in bytes.
const MaxFile = 4 << 20

// MaxRecords is the number of entries, the latest ones, that a trust audit keeps.
const MaxRecords = 50
