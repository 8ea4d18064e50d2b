// A program with the client of oapi-codegen: one call of each kind.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"example/client"
	"github.com/google/uuid"
)

func require(holds bool, what string, answer any) {
	if !holds {
		fmt.Fprintf(os.Stderr, "wrong: %s: %+v\n", what, answer)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	authorize := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+os.Getenv("ROOKERY_KEY"))
		return nil
	}
	api, err := client.NewClientWithResponses(os.Args[1], client.WithRequestEditorFn(authorize))
	require(err == nil, "client", err)
	tags, wait := []string{"build"}, 5000
	metadata := map[string]any{"user_id": "u_17"}
	stored, err := api.RememberWithResponse(ctx, nil, client.RememberBody{
		Content: "The build runs on Tuesdays.", Tags: &tags, Metadata: &metadata, WaitMs: &wait,
	})
	require(err == nil && stored.JSON201 != nil, "remember", err)
	id := uuid.MustParse(stored.JSON201.Id)

	found, err := api.RecallWithResponse(ctx, nil, client.RecallBody{Query: "When does the build run?"})
	require(err == nil && found.JSON200 != nil && len(found.JSON200.Memories) == 1 && found.JSON200.Memories[0].Id == id.String(), "recall", found)

	for value, count := range map[string]int{"u_17": 1, "u_18": 0} {
		filter := map[string]any{"user_id": value}
		listed, err := api.ListMemoriesWithResponse(ctx, &client.ListMemoriesParams{Metadata: &filter})
		require(err == nil && listed.JSON200 != nil && len(listed.JSON200.Data) == count, "list of "+value, listed)
	}

	read, err := api.ReadResourceWithResponse(ctx, "library://books/walden", nil)
	require(err == nil && strings.Contains(string(read.Body), "Henry David Thoreau"), "resource", read)

	content := "The build runs on Fridays."
	updated, err := api.UpdateMemoryWithResponse(ctx, id, nil, client.ChangeBody{Content: &content})
	require(err == nil && updated.JSON200 != nil && updated.JSON200.Content == content && len(updated.JSON200.Tags) == 1, "update", updated)

	archived, err := api.ArchiveMemoryWithResponse(ctx, id, nil)
	require(err == nil && archived.JSON200 != nil && string(archived.JSON200.State) == "archived", "archive", archived)

	arguments := map[string]any{"title": "walden"}
	called, err := api.CallToolWithResponse(ctx, nil, client.ToolCallRequest{Server: "library", Tool: "find_book", Arguments: &arguments})
	require(err == nil && called.JSON200 != nil && called.JSON200.Success, "tool call", called)
}
