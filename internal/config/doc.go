// Package config lets the flags of a command be set by variables and by a file, too.
//
// The flags are the one table: a flag --sync-interval is the variable
// SKALD_SYNC_INTERVAL and the key sync-interval of the file, with the same values. What
// the command line says comes before the variable, that before the file, that before
// the default. [Apply] sets the flags, so that who reads them need not know from where
// they come; it returns that for who asks.
//
// A key that is no flag is an error. A variable that is none is not: systems that run
// programs set variables of their own, such as SKALD_SERVICE_HOST.
package config
