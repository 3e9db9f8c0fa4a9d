package gateway

import _ "embed"

// openAPI describes this API, and is served by it.
//
//go:embed openapi.json
var openAPI []byte
