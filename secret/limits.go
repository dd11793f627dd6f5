package secret

const (
	maxEncoded  = 4 << 10 // bytes of a value that a Redactor finds in other than its plain form
	minBase64   = 4       // bytes of a value that a Redactor finds in base64, where a shorter one occurs by chance
	maxSearches = 1 << 20 // places in a text where a Redactor looks for a value
)
