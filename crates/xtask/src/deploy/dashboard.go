// Checks a dashboard against the types that Grafana publishes under the Apache License: no field is unknown, missing or of another type.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		refuse(err)
	}
	var board dashboard.Dashboard
	// What it gives back is a list of problems, which is never nil.
	if err := board.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		refuse(err)
	}
	if err := board.Validate(); err != nil {
		refuse(err)
	}
}

func refuse(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
