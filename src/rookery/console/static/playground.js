// The playground. The server keeps JSON and form equal.
const { onPart, readEvents } = await import("./console.js" + new URL(import.meta.url).search);

const $ = (id) => document.getElementById(id);
const BOTH = ["fields", "json-side"];
const parse = (html) => new DOMParser().parseFromString(html, "text/html");

function save(part, type, name) {
  const href = URL.createObjectURL(new Blob([part], { type }));
  Object.assign(document.createElement("a"), { href, download: name }).click();
}

onPart("[data-playground]", (form) => {
  let timer, running, raw, count = 0;
  const cancel = $("cancel");
  if (cancel) cancel.onclick = () => running?.abort();

  function send(fields, options = {}, from = form) {
    clearTimeout(timer);
    const body = new URLSearchParams(new FormData(from));
    for (const name in fields) body.set(name, fields[name]);
    return fetch(form.action, { method: "POST", body, ...options, headers: { "HX-Request": "true", ...options.headers } });
  }

  // *ids*: the parts to replace.
  async function sync(ids, fields) {
    const number = ++count;
    const page = parse(await (await send({ do: "sync", ...fields })).text());
    if (number !== count || !page.getElementById("editor")) return;
    const focus = document.activeElement.name;
    if (!ids.length) $("arguments").value = page.getElementById("arguments").value;
    for (const id of ["problems", ...(ids === BOTH ? ids : ["snippets", "base-side", ...ids])]) $(id)?.replaceWith(page.getElementById(id) ?? "");
    if (focus && document.activeElement === document.body) form.elements[focus]?.focus?.();
  }

  form.addEventListener("input", ({ target }) => {
    const ids = target.id === "arguments" ? ["fields"] : "structure" in target.dataset ? BOTH : [];
    clearTimeout(timer);
    timer = setTimeout(sync, ids === BOTH ? 0 : 300, ids);
  });

  // Before console.js disables the buttons.
  document.addEventListener("submit", (event) => {
    const { target, submitter: { name, value } = {} } = event;
    if (target !== form && !("answer" in target.dataset)) return;
    event.preventDefault();
    event.stopPropagation();
    if (target !== form || (name === "do" && value !== "sync")) run({ [name]: value }, target);
    else sync(BOTH, name === "edit" ? { edit: value } : {});
  }, true);

  // *from*: the form of a call, or of answers to a tool.
  async function run(fields, from) {
    if (running) return;
    count++;
    $("confirm")?.close();
    const own = (running = new AbortController());
    const end = () => {
      if (running !== own) return false;
      running = undefined;
      return (cancel.hidden = progress.hidden = true);
    };
    const [section, progress, log, output] = ["output-section", "progress", "log", "output"].map($);
    cancel.hidden = progress.hidden = section.hidden = false;
    progress.removeAttribute("value");
    log.textContent = output.textContent = "";
    try {
      const response = await send(fields, { headers: { Accept: "text/event-stream" }, signal: own.signal }, from);
      if (!response.headers.get("content-type").includes("event-stream")) {
        const page = parse(await response.text());
        const editor = page.getElementById("editor");
        section.hidden = !!editor;
        end();
        return editor ? $("editor").replaceWith(editor) : output.append(...page.body.childNodes);
      }
      for await (const [name, data] of readEvents(response)) {
        if (name === "result") {
          raw = data.raw;
          end(); // The result may be a form to answer, before the stream ends.
          output.append(...parse(data.html).body.childNodes);
        } else {
          if (data.total) Object.assign(progress, { max: data.total, value: data.progress });
          log.append(`${data.message ?? data.data ?? data.progress}\n`);
        }
      }
      end();
    } catch (error) {
      if (end()) output.textContent = own.signal.aborted ? "Cancelled. The tool may have acted." : `It failed: ${error.message}`;
    }
  }

  $("output").addEventListener("click", ({ target }) => {
    const { block, mime } = target.closest("button")?.dataset ?? {};
    if (target.closest("[data-raw]")) save(JSON.stringify(raw, null, 2), "application/json", "result.json");
    else if (block) {
      const { data, resource } = raw.content[block];
      save(Uint8Array.from(atob(data ?? resource.blob), (char) => char.charCodeAt(0)), mime, `result.${mime.split("/")[1]}`);
    }
  });
});
