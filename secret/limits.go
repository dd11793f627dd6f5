package secret

const (
	maxEncoded  = 4 << 10 // bytes of a value that a Redactor finds in other than its plain form
	minBase64   = 4       // bytes of a value that a Redactor finds in base64, where a shorter one occurs by chance
	maxHead     = 24      // characters of a value that a Redactor looks for first
	maxSteps    = 1 << 19 // bytes of values that were compared because their beginnings are in the text
	maxSearches = 1 << 18 // places in a text where a Redactor looks for a value
)
