// The console's own script: menus, dialogs, copy buttons and charts. Parts of pages say by data attributes what they need.
// Other modules of this folder (map.js, schema-form.js, …) register further parts by `onPart`.

const parts = [];

/** Calls *start* once for every element that matches *selector*, now and after htmx has inserted it. */
export function onPart(selector, start) {
  parts.push([selector, start, new WeakSet()]);
  startParts();
}

function startParts() {
  for (const [selector, start, started] of parts)
    for (const element of document.querySelectorAll(selector)) {
      if (started.has(element)) continue;
      started.add(element);
      start(element);
    }
}

/** Shows a short message at the corner of the window. */
function say(text) {
  const message = document.createElement("p");
  message.textContent = text;
  document.getElementById("messages")?.append(message);
  setTimeout(() => message.remove(), 4000);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied.");
}

document.addEventListener("click", (event) => {
  const target = event.target.closest?.("[data-copy], [data-copy-next], [commandfor]");
  if (!target) return;
  if (target.dataset.copy !== undefined) copy(target.dataset.copy);
  else if (target.dataset.copyNext !== undefined) copy(target.closest("figure").querySelector("pre").textContent);
  // Browsers of before 2026 open dialogs by this script only.
  else if (!("commandForElement" in target)) document.getElementById(target.getAttribute("commandfor")).showModal();
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});

// A form is sent once. Its buttons are disabled after the browser has collected its values.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method === "dialog" || form.hasAttribute("hx-post") || form.method === "get") return;
  setTimeout(() => form.querySelectorAll("button").forEach((button) => (button.disabled = true)));
});

// A chosen file fills a text field of its form, so that it is sent as text and can be read before.
document.addEventListener("change", async ({ target }) => {
  const { fileInto, fileNameInto, maxBytes } = target.dataset;
  const file = fileInto && target.files[0];
  if (!file) return;
  const text = file.size > maxBytes ? "" : await file.text();
  if (text && !text.includes("\0")) {
    document.getElementById(fileInto).value = text;
    document.getElementById(fileNameInto).value = file.name;
    return;
  }
  say(`The file is ${text ? "no text" : "too large"}. Use the command rookery import.`);
  target.value = "";
});

/** Yields the name and the data of each event of a stream. */
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = "", read; !(read = await reader.read()).done; ) {
    const parts = (text + read.value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)/m.exec(part) ?? [];
      if (name) yield [name, JSON.parse(data)];
    }
  }
}

/** Returns the value of a variable of the stylesheet, such as `--accent`. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The numbers of the day below the pointer take the place of the sums. Later series are drawn in front of the first one.
function startChart(figure) {
  const { days, steps, colors, values } = JSON.parse(figure.dataset.chart);
  const element = figure.querySelector(".plot");
  const outputs = [...figure.querySelectorAll("figcaption b"), figure.querySelector("[data-chart-day]")];
  const sums = outputs.map((output) => output.textContent);
  const show = (number) => number.toLocaleString("en", { maximumSignificantDigits: 4 }).replaceAll(",", "\u202f");
  const write = ({ cursor: { idx } }) =>
    outputs.forEach((output, index) => (output.textContent = idx == null ? sums[index] : index < values.length ? show(values[index][idx]) : days[idx]));
  const getSize = () => ({ width: element.clientWidth, height: element.clientHeight });
  let plot;
  function draw() {
    plot?.destroy();
    const axis = { stroke: color("--soft"), ticks: { show: false }, font: "12px system-ui" };
    const bars = { width: 0, paths: uPlot.paths.bars({ size: [0.65, 36], radius: 0.12 }), points: { show: false } };
    const options = {
      ...getSize(),
      legend: { show: false },
      cursor: { y: false, drag: { x: false }, points: { show: false } },
      scales: { x: { time: false, range: [-0.6, days.length - 0.4] }, y: { range: (_, least, most) => [0, most * 1.05 || 1] } },
      axes: [
        { ...axis, grid: { show: false }, size: 28, space: 64, incrs: [1, 2, 7, 14, 30], values: (_, ticks) => ticks.map((tick) => days[tick]) },
        { ...axis, grid: { stroke: color("--line"), width: 1 }, size: 52, ...(steps && { incrs: steps }), values: (_, ticks) => ticks.map(show) },
      ],
      series: [{}, ...colors.map((name) => ({ ...bars, fill: color(`--${name}`) }))],
      hooks: { setCursor: [write] },
    };
    plot = new uPlot(options, [days.map((_, index) => index), ...values], element);
  }
  draw();
  new ResizeObserver(() => plot.setSize(getSize())).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

// On narrow screens, rows of lists become blocks without a head. There each number needs the title of its column.
onPart("table.rows", (table) => {
  const titles = [...table.tHead.rows[0].cells].map((cell) => (cell.firstElementChild ? "" : cell.textContent));
  for (const cell of table.querySelectorAll("td")) {
    cell.classList.toggle("none", cell.textContent.trim() === "–");
    if (cell.matches(".num")) cell.dataset.label = titles[cell.cellIndex];
  }
});

onPart("[data-chart]", startChart);
document.addEventListener("htmx:after:swap", startParts);
