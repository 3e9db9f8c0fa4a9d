package demo

// workspaces are the story's; their names say that they can be forgotten.
var workspaces = []string{"demo-shop", "demo-search", "demo-docs", "demo-billing", "demo-mobile", "demo-infra"}

// task is what a session is about, and what its user asks for, one after the other.
type task struct {
	id      string // the beginning of the session's id
	about   string
	prompts []string
}

var tasks = []task{
	{"checkout-retries", "Retry failed payments", []string{
		"Retry a payment when the gateway times out", "Add a test for two time-outs in a row", "Do not retry when the card was refused",
	}},
	{"reindex", "Speed up the catalogue's reindex", []string{
		"Find out why the reindex takes four hours", "Read the products in pages of 500", "Measure it again on the full catalogue",
	}},
	{"api-guide", "Rewrite the API guide", []string{
		"List what the API guide does not mention", "Describe the error codes in one table", "Try every curl command in the guide",
	}},
	{"cart-safari", "The cart empties itself on Safari", []string{
		"Why does the cart empty itself on Safari?", "Fix the cookie's SameSite attribute", "Write down how to reproduce it",
	}},
	{"synonyms", "Synonyms in product search", []string{
		"Let a search for sofa find couches", "Load the synonyms from a file", "What does that cost at query time?",
	}},
	{"broken-links", "Check the manual's links", []string{
		"Find broken links in the manual", "Fix those that have only moved", "Run the check before each release",
	}},
	{"currency", "Prices in the buyer's currency", []string{
		"Show prices in the buyer's currency", "Round as the accountants do", "Remove the flag new-prices",
	}},
	{"typo-search", "Forgive typing errors", []string{
		"Let a search forgive one typing error", "Do not do that for order numbers", "Compare the results of last week's searches",
	}},
	{"screenshots", "New screenshots for the manual", []string{
		"Take new screenshots of the settings", "In light and dark", "Replace the old ones where they are used",
	}},
}

// followUps are what users ask for when a task's own prompts are done.
var followUps = []string{
	"Explain the last change in two sentences", "Run the whole test suite again", "Split that into two commits",
	"Is there a simpler way?", "Undo the last edit", "Write a changelog entry", "Who else calls this?",
	"Add a benchmark", "Rename it as the others are named", "Look at the review comments", "Rebase onto main",
	"Check it on Windows, too", "What did we leave out?", "Document the new flag", "Clean up the log lines",
}

// what an agent says while it works, in pieces as it streams.
var sayings = []string{
	"I will look at the code first.", "The tests pass without my change.", "That function is called from two places.",
	"There is a helper for this already.", "I found the cause: the time-out is read once at the start.", "This needs a migration.",
	"Now I will run the tests.", "One test fails, as it should.", "I have changed three files.", "Let me check how the others do it.",
}

var thoughts = []string{
	"The error is raised before the retry is reached.", "Both callers hold the lock.", "The fixture is older than the schema.",
	"I should not touch the public type.", "A smaller change would do.",
}

// tool is a tool call with what it prints.
type tool struct{ title, kind, output string }

var tools = []tool{
	{"Read internal/payment/gateway.go", "read", "214 lines"},
	{"Search for RetryPolicy", "search", "7 matches in 4 files"},
	{"Run go test ./...", "execute", "ok  	41 packages"},
	{"Edit internal/payment/retry.go", "edit", "+18 -4"},
	{"Run make lint", "execute", "no findings"},
	{"Fetch the gateway's documentation", "fetch", "12 kB"},
	{"Run the benchmark", "execute", "1.9 ms/op"},
	{"Edit docs/errors.md", "edit", "+42 -0"},
}

// question is what an agent asks its user.
type question struct {
	message string
	options []string // none: a text
}

var questions = []question{
	{"Which database shall the migration run against?", []string{"staging", "production"}},
	{"May I change the public type Order?", []string{"yes", "no"}},
	{"Two tests contradict each other. Which one is right?", []string{"the older", "the newer"}},
	{"What shall the flag be called?", nil},
	{"The branch is 40 commits behind. Rebase it?", []string{"rebase", "merge", "leave it"}},
}

// failure is a way in which a turn ends badly: the harness's stop reason.
type failure struct{ reason, message string }

var failures = []failure{
	{"provider_error", "the model's provider answered 529: overloaded"},
	{"MaxTokens", "the answer was cut at 32,768 tokens"},
	{"max_turn_requests", "200 requests in one turn, which is the limit"},
}

var troubles = []string{
	"no space left on device: /var/lib/worker", "git push: the remote has moved, fetch first", "the sandbox did not start within 30s",
}
