// A program with the Java client of openapi-generator: one call of each kind, and an error.
import static java.util.Collections.singletonList;
import static java.util.Collections.singletonMap;

import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.JSON;
import org.openapitools.client.api.ExecutionApi;
import org.openapitools.client.api.MemoryApi;
import org.openapitools.client.model.ChangeBody;
import org.openapitools.client.model.Error;
import org.openapitools.client.model.Memory;
import org.openapitools.client.model.RecallBody;
import org.openapitools.client.model.RecalledMemory;
import org.openapitools.client.model.Remember;
import org.openapitools.client.model.RememberBody;
import org.openapitools.client.model.ToolCallRequest;

public final class UseOpenapiGenerator {
  private static void require(boolean holds, String what) {
    if (!holds) {
      System.err.println("wrong: " + what);
      System.exit(1);
    }
  }

  private static ApiClient connect(String url, String key) {
    ApiClient client = new ApiClient().setBasePath(url);
    client.setBearerToken(key);
    return client;
  }

  private static List<Memory> list(MemoryApi api, Map<String, Object> metadata) throws ApiException {
    return api.listMemories(
            null, null, null, null, null, null, null, null, null, null, metadata, null, null, null, null, null, null)
        .getData();
  }

  public static void main(String[] arguments) throws ApiException {
    ApiClient client = connect(arguments[0], System.getenv("ROOKERY_KEY"));
    MemoryApi memories = new MemoryApi(client);
    RememberBody body =
        new RememberBody()
            .content("The build runs on Tuesdays.")
            .tags(singletonList("build"))
            .metadata(singletonMap("user_id", "u_17"))
            .waitMs(5000);
    Remember stored = memories.remember(body, null, null, null);
    UUID id = UUID.fromString(stored.getId());

    List<RecalledMemory> found = memories.recall(new RecallBody().query("When does the build run?"), null).getMemories();
    require(found.size() == 1 && found.get(0).getId().equals(stored.getId()), "recall");

    // The client writes the members of an object in a query without the name of the parameter.
    require(list(memories, singletonMap("metadata[user_id]", "u_17")).size() == 1, "list of u_17");
    require(list(memories, singletonMap("metadata[user_id]", "u_18")).isEmpty(), "list of u_18");

    ExecutionApi execution = new ExecutionApi(client);
    Object contents = execution.readResource("library://books/walden", null, null).getContent().get("contents");
    require(contents.toString().contains("Henry David Thoreau"), "resource");

    Memory changed = memories.updateMemory(id, new ChangeBody().content("The build runs on Fridays."), null, null);
    require(changed.getContent().equals("The build runs on Fridays."), "content after update");
    require(changed.getTags().equals(singletonList("build")), "tags after update");

    require(memories.archiveMemory(id, null, null).getState() == Memory.StateEnum.ARCHIVED, "archive");

    ToolCallRequest call = new ToolCallRequest().server("library").tool("find_book").arguments(singletonMap("title", "walden"));
    require(execution.callTool(call, null, null, null, null).getSuccess(), "tool call");

    try {
      new MemoryApi(connect(arguments[0], "unknown")).recall(new RecallBody().query("anything"), null);
      require(false, "an unknown key is accepted");
    } catch (ApiException error) {
      require(error.getCode() == 401, "status of an unknown key");
      Error answer = JSON.deserialize(error.getResponseBody(), Error.class);
      require(answer.getError().equals("unauthorised"), "error");
    }
  }
}
