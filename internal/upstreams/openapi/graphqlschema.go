package openapi

import "strings"

// introspection returns the document that requests a [graphSchema], with references to types of up to
// eight lists and non-nulls.
func introspection() string {
	return "query junctor { __schema { queryType { name } mutationType { name } types { kind name " +
		"fields(includeDeprecated: false) { name description args { name description defaultValue type { ...t } } type { ...t } } " +
		"inputFields { name description defaultValue type { ...t } } enumValues(includeDeprecated: true) { name } } } } " +
		"fragment t on __Type { kind name " + strings.Repeat("ofType { kind name ", 8) + strings.Repeat("} ", 9)
}

// graphAnswer is the answer to [introspection].
type graphAnswer struct {
	Data struct {
		Schema graphSchema `json:"__schema"`
	} `json:"data"`
}

// graphSchema describes a GraphQL API (GraphQL, October 2021).
type graphSchema struct {
	Query    *graphType  `json:"queryType"`
	Mutation *graphType  `json:"mutationType"`
	Types    []graphType `json:"types"`
}

// The kinds of types that are not objects.
const (
	graphScalar = "SCALAR"
	graphEnum   = "ENUM"
	graphUnion  = "UNION"
	graphInput  = "INPUT_OBJECT"
	graphList   = "LIST"
	graphAlways = "NON_NULL"
)

// graphType is a type, or a reference to one.
type graphType struct {
	Kind        string       `json:"kind"`
	Name        string       `json:"name"`
	OfType      *graphType   `json:"ofType"`
	Fields      []graphField `json:"fields"`
	InputFields []graphField `json:"inputFields"`
	EnumValues  []struct {
		Name string `json:"name"`
	} `json:"enumValues"`
}

// graphField is a field, an argument, or a field of an input.
type graphField struct {
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Args        []graphField `json:"args"`
	Type        *graphType   `json:"type"`
	Default     *string      `json:"defaultValue"`
}

// required reports whether an argument must be given.
func (f *graphField) required() bool {
	return f.Type != nil && f.Type.Kind == graphAlways && f.Default == nil
}
