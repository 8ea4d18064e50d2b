// Shows the answer of a language model as it is written. Leaving the page ends the request, and with it the call of the provider.

const { onPart } = await import("./console.js" + new URL(import.meta.url).search);

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
  let rest = "";
  let done = false;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const field = (name) => event.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = JSON.parse(field("data") ?? "null");
      if (field("event") === "start") {
        find("link").href = form.dataset.generation + data.id;
        find("link").hidden = false;
        show("The model writes…");
      } else if (field("event") === "reasoning") show("The model reasons…");
      else if (field("event") === "delta") {
        if (!find("text").hasChildNodes()) show("The model writes…");
        find("text").append(data.text);
      }
      else if (field("event") === "done") {
        done = true;
        show(data.error ? `${data.status}: ${data.error.message}` : `${data.status}, ${data.usage?.output_tokens ?? 0} output tokens`);
      }
    }
  }
  if (!done) show("The stream ended before its last event. The generation has the reason.");
}
