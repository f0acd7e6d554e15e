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
	var board dashboard.Dashboard
	if err == nil {
		err = board.UnmarshalJSONStrict(text)
	}
	if err == nil {
		err = board.Validate()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
