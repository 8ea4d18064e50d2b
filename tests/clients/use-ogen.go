// A program with the client of ogen: one call of each kind.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"example/client"
	"github.com/go-faster/jx"
	"github.com/google/uuid"
)

type key string

func (k key) BearerAuth(context.Context, client.OperationName) (client.BearerAuth, error) {
	return client.BearerAuth{Token: string(k)}, nil
}

func (k key) ApiKeyAuth(context.Context, client.OperationName) (client.ApiKeyAuth, error) {
	return client.ApiKeyAuth{APIKey: string(k)}, nil
}

func must[T any](answer any, err error) T {
	expected, ok := answer.(T)
	if err != nil || !ok {
		fmt.Fprintf(os.Stderr, "%T instead of %T: %v\n", answer, *new(T), err)
		os.Exit(1)
	}
	return expected
}

func require(holds bool, what string) {
	if !holds {
		fmt.Fprintln(os.Stderr, "wrong:", what)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	api, err := client.NewClient(os.Args[1], key(os.Getenv("ROOKERY_KEY")))
	require(err == nil, "client")
	body := client.RememberBody{Content: "The build runs on Tuesdays."}
	body.Tags.SetTo([]string{"build"})
	body.Metadata.SetTo(client.RememberBodyMetadata{"user_id": jx.Raw(`"u_17"`)})
	body.WaitMs.SetTo(5000)
	remembered, err := api.Remember(ctx, &body, client.RememberParams{})
	stored := must[*client.RememberCreated](remembered, err).Response

	found, err := api.Recall(ctx, &client.RecallBody{Query: "When does the build run?"}, client.RecallParams{})
	memories := must[*client.RecallHeaders](found, err).Response.Memories
	require(len(memories) == 1 && memories[0].ID == stored.ID, "recall")

	for value, count := range map[string]int{"u_17": 1, "u_18": 0} {
		params := client.ListMemoriesParams{}
		params.Metadata.SetTo(client.ListMemoriesMetadata{"user_id": value})
		listed, err := api.ListMemories(ctx, params)
		require(len(must[*client.MemoriesHeaders](listed, err).Response.Data) == count, "list of "+value)
	}

	read, err := api.ReadResource(ctx, client.ReadResourceParams{URI: "library://books/walden"})
	content := must[*client.ResourceResponseHeaders](read, err).Response.Content
	require(strings.Contains(string(content["contents"]), "Henry David Thoreau"), "resource")

	change := client.ChangeBody{}
	change.Content.SetTo("The build runs on Fridays.")
	updated, err := api.UpdateMemory(ctx, &change, client.UpdateMemoryParams{MemoryID: uuid.MustParse(stored.ID)})
	changed := must[*client.MemoryHeaders](updated, err).Response
	require(changed.Content == "The build runs on Fridays." && len(changed.Tags) == 1, "update")

	archived, err := api.ArchiveMemory(ctx, client.ArchiveMemoryParams{MemoryID: uuid.MustParse(stored.ID)})
	require(string(must[*client.MemoryHeaders](archived, err).Response.State) == "archived", "archive")

	request := client.ToolCallRequest{Server: "library", Tool: "find_book"}
	request.Arguments.SetTo(client.ToolCallRequestArguments{"title": jx.Raw(`"walden"`)})
	called, err := api.CallTool(ctx, &request, client.CallToolParams{})
	require(must[*client.ToolCallResponseHeaders](called, err).Response.Success, "tool call")
}
