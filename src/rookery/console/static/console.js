// The console's own script: menus, dialogs, copy buttons and charts. Parts of pages say by data attributes what they need.
// Other modules of this folder (map.js, schema-form.js, …) register further parts by `onPart`.

const parts = [];

/** Calls *start* once for every element that matches *selector*, now and after htmx has inserted it. */
export function onPart(selector, start) {
  parts.push([selector, start, new WeakSet()]);
  startParts();
}

function startParts() {
  for (const [selector, start, started] of parts) {
    for (const element of document.querySelectorAll(selector)) {
      if (started.has(element)) continue;
      started.add(element);
      start(element);
    }
  }
}

/** Shows a short message at the corner of the window. */
export function say(text) {
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
  const target = event.target.closest?.("[data-copy], [data-copy-next], [data-dialog], [data-toggle]");
  for (const menu of document.querySelectorAll("details[data-menu][open]")) if (!menu.contains(event.target)) menu.open = false;
  const side = document.querySelector(".side.open");
  if (side && !side.contains(event.target) && !target) setMenu(side, false);
  if (!target) return;
  if (target.dataset.copy !== undefined) copy(target.dataset.copy);
  else if (target.dataset.copyNext !== undefined) copy(target.closest("figure").querySelector("pre").textContent);
  else if (target.dataset.dialog) document.getElementById(target.dataset.dialog)?.showModal();
  else if (target.dataset.toggle) {
    const menu = document.getElementById(target.dataset.toggle);
    setMenu(menu, !menu.classList.contains("open"));
  }
});

function setMenu(menu, isOpen) {
  menu.classList.toggle("open", isOpen);
  document.querySelector(`[data-toggle="${menu.id}"]`)?.setAttribute("aria-expanded", String(isOpen));
  if (isOpen) menu.querySelector("a")?.focus();
}

document.addEventListener("keydown", (event) => {
  const side = document.querySelector(".side.open");
  if (event.key === "Escape" && side) {
    setMenu(side, false);
    document.querySelector(`[data-toggle="${side.id}"]`)?.focus();
  }
  for (const menu of document.querySelectorAll("details[data-menu][open]")) if (event.key === "Escape") menu.open = false;
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    const search = document.querySelector(".search input, input[type=search]");
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

// Filters apply when a choice changes.
document.addEventListener("change", (event) => {
  const form = event.target.closest?.("form[data-filters]");
  if (form && event.target.matches("select, input[type=checkbox], input[type=date]")) form.requestSubmit();
});

/** Returns the value of a variable of the stylesheet, such as `--accent`. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function drawChart(element) {
  const data = JSON.parse(element.dataset.chart);
  const unit = element.dataset.unit;
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const kinds = { accent: "--accent", good: "--good", bad: "--bad", warn: "--warn", busy: "--busy" };
  const options = {
    width: element.clientWidth,
    height: Math.max(160, element.clientHeight),
    legend: { show: data.series.length > 1 },
    cursor: { points: { size: 6 } },
    scales: { x: { time: data.time !== false } },
    axes: [axis, { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString("en", { maximumSignificantDigits: 6 }) + (unit ? ` ${unit}` : "")) }],
    series: [
      {},
      ...data.series.map((series) => {
        const stroke = color(kinds[series.kind] ?? "--accent");
        const bars = series.bars ? { paths: uPlot.paths.bars({ size: [0.7, 40], radius: 0.15 }), points: { show: false } } : {};
        return { label: series.label, stroke, fill: stroke + (series.bars ? "cc" : "22"), width: series.bars ? 0 : 2, ...bars };
      }),
    ],
  };
  const plot = new uPlot(options, [data.x, ...data.series.map((series) => series.values)], element);
  new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: options.height })).observe(element);
}

onPart("[data-chart]", drawChart);
document.addEventListener("htmx:after:swap", startParts);
