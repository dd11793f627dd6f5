package roots

// maxPath bounds a caller's path in bytes.
const maxPath = 4096
