// Package archtest keeps the packages in their order. Its test reads every Go file
// of the module and fails when one
//
//   - imports what its package may not: bus nothing of Skald's; publisher,
//     consumer and materializer only bus; materializer/projection only bus, and
//     nothing by which a pure function could depend on time, chance or I/O;
//     materializer/store only bus and materializer/projection; internal/natsd and
//     internal/dirlock nothing of Skald's, internal/natsconn only bus; nobody but
//     tests the commands in cmd, and nobody but tests the helpers in
//     internal/skaldtest;
//   - is longer than 400 lines without a line "// Long because: …" at its top;
//   - declares func init (tests may);
//   - belongs to a package without a doc.go.
//
// A folder of which git tracks no Go file is left out: it is somebody's scratch.
//
// The rules are in rules_test.go; a rule that must change is changed there, with
// the design.
package archtest
