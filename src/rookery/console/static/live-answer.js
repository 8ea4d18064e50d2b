// Shows the answer of a language model as it is written. Leaving the page ends the request, and with it the call of the provider.

const { onPart, readEvents } = await import("./console.js" + new URL(import.meta.url).search);

onPart("form[data-live]", (form) => {
  const find = (name) => document.querySelector(`[data-live-${name}]`);
  let running = null;
  form.addEventListener("submit", (event) => {
    if (form.elements.mode.value !== "stream") return;
    event.preventDefault();
    running?.abort();
    running = new AbortController();
    find("text").textContent = "";
    find("link").hidden = true;
    const show = (text) => (find("state").textContent = text);
    show("Waiting for the language model…");
    read(form, running, show, find)
      .catch((error) => error.name === "AbortError" || show(`The connection broke off: ${error.message}`))
      .finally(() => form.querySelectorAll("button").forEach((button) => (button.disabled = false)));
  });
  addEventListener("pagehide", () => running?.abort());
});

async function read(form, controller, show, find) {
  const response = await fetch(form.dataset.live, { method: "POST", body: new URLSearchParams(new FormData(form)), signal: controller.signal });
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    if (response.redirected) return location.assign(response.url);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    document.querySelector("main").replaceWith(page.querySelector("main"));
    document.dispatchEvent(new Event("htmx:after:swap"));
    return scrollTo(0, 0);
  }
  let done;
  for await (const [name, data] of readEvents(response)) {
    if (name === "start") {
      find("link").href = form.dataset.generation + data.id;
      find("link").hidden = false;
      show("The model writes…");
    } else if (name === "reasoning") show("The model reasons…");
    else if (name === "delta") {
      if (!find("text").hasChildNodes()) show("The model writes…");
      find("text").append(data.text);
    } else if (name === "done") {
      done = true;
      show(data.error ? `${data.status}: ${data.error.message}` : `${data.status}, ${data.usage?.output_tokens ?? 0} output tokens`);
    }
  }
  if (!done) show("The stream ended before its last event. The generation has the reason.");
}
