package engine

// maxListed bounds the calls in the metadata of a reply.
const maxListed = 100

// maxExcerpt is the length, in runes, of an input that an error quotes.
const maxExcerpt = 60
