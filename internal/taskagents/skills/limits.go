package skills

import "time"

// useTimeout bounds one use of a skill.
const useTimeout = 2 * time.Minute

const maxRead = 64 << 10

// Weights and limits of the recommender.
const (
	MaxRecommended = 5

	minWord       = 4 // letters of a word that counts
	jaccardShare  = .4
	coverageShare = .6
	perWord       = .05 // for each word of the context in a skill's text
	maxBoost      = .15
	candidates    = 10
	certain       = .9 // score from which the model is not asked
	wordsShare    = .4
	modelShare    = .6
	maxTaskShown  = 2_000 // characters
)

// Bounds of the manifest.
const (
	MaxListed      = 200 // skills
	MaxDescription = 200 // characters
	maxName        = 80
	maxSlug        = 64 // longest name in a directive
)
