package setup

// maxPackageDepth bounds the folders above a file that are searched for its package.
const maxPackageDepth = 8
