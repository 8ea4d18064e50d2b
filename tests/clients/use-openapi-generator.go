// A program with the Go client of openapi-generator: one call of each kind, and an error.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	client "github.com/GIT_USER_ID/GIT_REPO_ID"
)

func require(holds bool, what string, answer any) {
	if !holds {
		fmt.Fprintf(os.Stderr, "wrong: %s: %+v\n", what, answer)
		os.Exit(1)
	}
}

func must[T any](answer *T, _ *http.Response, err error) *T {
	require(err == nil && answer != nil, fmt.Sprintf("%T", answer), err)
	return answer
}

func authorize(key string) context.Context {
	return context.WithValue(context.Background(), client.ContextAccessToken, key)
}

func main() {
	ctx := authorize(os.Getenv("ROOKERY_KEY"))
	configuration := client.NewConfiguration()
	configuration.Servers = client.ServerConfigurations{{URL: os.Args[1]}}
	api := client.NewAPIClient(configuration)

	body := client.NewRememberBody("The build runs on Tuesdays.")
	body.SetTags([]string{"build"})
	body.SetMetadata(map[string]any{"user_id": "u_17"})
	body.SetWaitMs(5000)
	stored := must(api.MemoryAPI.Remember(ctx).RememberBody(*body).Execute())

	found := must(api.MemoryAPI.Recall(ctx).RecallBody(*client.NewRecallBody("When does the build run?")).Execute())
	require(len(found.Memories) == 1 && found.Memories[0].Id == stored.Id, "recall", found)

	for value, count := range map[string]int{"u_17": 1, "u_18": 0} {
		listed := must(api.MemoryAPI.ListMemories(ctx).Metadata(map[string]any{"user_id": value}).Execute())
		require(len(listed.Data) == count, "list of "+value, listed)
	}

	read := must(api.ExecutionAPI.ReadResource(ctx, "library://books/walden").Execute())
	require(strings.Contains(fmt.Sprint(read.Content["contents"]), "Henry David Thoreau"), "resource", read)

	change := client.NewChangeBody()
	change.SetContent("The build runs on Fridays.")
	changed := must(api.MemoryAPI.UpdateMemory(ctx, stored.Id).ChangeBody(*change).Execute())
	require(changed.Content == "The build runs on Fridays." && len(changed.Tags) == 1, "update", changed)

	archived := must(api.MemoryAPI.ArchiveMemory(ctx, stored.Id).Execute())
	require(archived.State == "archived", "archive", archived)

	request := client.NewToolCallRequest("library", "find_book")
	request.SetArguments(map[string]any{"title": "walden"})
	called := must(api.ExecutionAPI.CallTool(ctx).ToolCallRequest(*request).Execute())
	require(called.Success, "tool call", called)

	_, response, err := api.MemoryAPI.Recall(authorize("unknown")).RecallBody(*client.NewRecallBody("anything")).Execute()
	var failure *client.GenericOpenAPIError
	require(errors.As(err, &failure) && response.StatusCode == 401, "unknown key", err)
	answer, ok := failure.Model().(client.Error)
	require(ok && answer.Error == "unauthorised", "error", failure)
}
