// Package access says who may read what over HTTP: bearer tokens, each for all
// workspaces or for some. Tokens only read.
//
// A token is "skald_" and 32 random bytes ([New]). The file of tokens holds its SHA-256
// alone, so that who reads the file can not use it; guessing 256 random bits needs no
// slow hash to be hopeless. Each line of the file is one JSON object:
//
//	{"name":"ci","sha256":"9f86d0…","workspaces":["acme","blue"]}
//	{"name":"ops","sha256":"60303a…","all":true}
//
// name is for people and logs, and occurs once; either all is true, or workspaces lists
// ids of workspaces. Empty lines and those that begin with # are skipped. A member that
// is not known is an error: a scope that is ignored would be a wider one.
//
// [Tokens] reads the file again when it changes. A file that can not be read or is
// wrong then changes nothing, and is told to the log and to readiness. A token that is
// gone, or has another scope, ends its open streams ([Grant.Revoked]).
package access
