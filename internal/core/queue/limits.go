package queue

import "time"

// maxCached is the maximum size of the cached results in bytes. The least recently used are
// dropped first.
const maxCached = 64 << 20

// maxBuckets bounds the stored buckets. Full buckets are dropped first, which changes nothing for
// their callers.
const maxBuckets = 65_536

// userShare is the part of an extension's rate that one user may use, so that others can call it.
const userShare = 0.75

// Limits bound active and waiting runs. Zero fields mean the defaults.
type Limits struct {
	Global       int           // active runs; default 2; callers set the number of processors
	PerUser      int           // 4
	PerExtension int           // 3
	PerSession   int           // 1
	Length       int           // waiting runs: 100
	Wait         time.Duration // longest wait: 60 s
	Ageing       time.Duration // waiting time that raises the priority by one step: 30 s
}
