package client

// maxAnswer is the largest response in bytes. By the server's default a result has at
// most 16 MiB; records and catalogs are far smaller.
const maxAnswer = 64 << 20

// maxSkill bounds a skill, in bytes.
const maxSkill = 1 << 20
