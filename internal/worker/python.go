package worker

const shim = ""
