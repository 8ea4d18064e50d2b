// The map of memories: points on a canvas, the memory below the pointer, and its page on a click.
// console.js is imported by the address that the page has, so that it runs once.
const { color, onPart } = await import("./console.js" + new URL(import.meta.url).search);

const CELL = 16;
const EXTENT = 32767;

const cell = (x, y) => `${Math.floor(x / CELL)} ${Math.floor(y / CELL)}`;

async function start(figure) {
  const canvas = figure.querySelector("canvas");
  const label = figure.querySelector("[data-map-label]");
  const response = await fetch(figure.dataset.map, { headers: { Accept: "application/json" } });
  if (!response.ok) return void (label.textContent = "The map could not be loaded.");
  const data = await response.json();
  const texts = new Map();
  let places, grid = new Map(), size, waiting, active = -1;

  function place(x, y) {
    return [size.width / 2 + (x / EXTENT) * (size.width / 2 - 12), size.height / 2 + (y / EXTENT) * (size.height / 2 - 12)];
  }

  function draw() {
    const ratio = devicePixelRatio || 1;
    size = { width: canvas.clientWidth, height: canvas.clientHeight };
    canvas.width = size.width * ratio;
    canvas.height = size.height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const colors = [1, 2, 3, 4, 5, 6, 7, 8].slice(0, data.groups.length).map((number) => color(`--c${number}`));
    const other = color("--faint");
    const radius = data.ids.length > 1500 ? 2 : data.ids.length > 300 ? 3 : 4.5;
    places = [];
    grid = new Map();
    context.globalAlpha = 0.75;
    data.ids.forEach((_, index) => {
      const [x, y] = place(data.coordinates[2 * index], data.coordinates[2 * index + 1]);
      places.push([x, y]);
      const key = cell(x, y);
      if (!grid.has(key)) grid.set(key, []);
      grid.get(key).push(index);
      context.fillStyle = colors[data.point_groups[index]] ?? other;
      context.beginPath();
      context.arc(x, y, radius, 0, 7);
      context.fill();
    });
    context.globalAlpha = 1;
    Object.assign(context, { font: "600 12px system-ui, sans-serif", textAlign: "center", lineJoin: "round", lineWidth: 4 });
    const taken = [];
    for (const cluster of data.clusters) {
      const text = cluster.words.slice(0, size.width < 500 ? 2 : 3).join(" · ");
      const half = context.measureText(text).width / 2 + 4;
      let [x, y] = place(cluster.x, cluster.y);
      x = Math.min(Math.max(x, half), size.width - half);
      if (taken.some((box) => Math.abs(box.x - x) < box.half + half && Math.abs(box.y - y) < 16)) continue;
      taken.push({ x, y, half });
      context.strokeStyle = color("--paper");
      context.strokeText(text, x, y);
      context.fillStyle = color("--ink");
      context.fillText(text, x, y);
    }
    if (active >= 0) {
      context.strokeStyle = color("--ink");
      context.lineWidth = 2;
      context.beginPath();
      context.arc(...places[active], radius + 4, 0, 7);
      context.stroke();
    }
  }

  function find(x, y) {
    let best = -1, least = 144;
    for (const dx of [-CELL, 0, CELL])
      for (const dy of [-CELL, 0, CELL])
        for (const index of grid.get(cell(x + dx, y + dy)) ?? []) {
          const distance = (places[index][0] - x) ** 2 + (places[index][1] - y) ** 2;
          if (distance < least) [best, least] = [index, distance];
        }
    return best;
  }

  async function show(index) {
    active = index;
    draw();
    canvas.classList.toggle("active", index >= 0);
    if (index < 0) return;
    const id = data.ids[index];
    if (!texts.has(id)) texts.set(id, fetch(`${figure.dataset.memories}/${id}/peek`).then((answer) => answer.ok && answer.json()));
    const memory = await texts.get(id);
    if (active === index) label.textContent = memory ? memory.text : "This memory no longer exists.";
  }

  canvas.addEventListener("pointermove", (event) => {
    const index = find(event.offsetX, event.offsetY);
    if (index === active) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => show(index), 40);
  });
  canvas.addEventListener("click", (event) => {
    const index = find(event.offsetX, event.offsetY);
    if (index >= 0) location.href = `${figure.dataset.memories}/${data.ids[index]}`;
  });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  figure.dataset.ready = String(data.ids.length);
}

onPart("[data-map]", start);
