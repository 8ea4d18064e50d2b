"use strict";
// The pages work without this script. It adds the copy buttons and the filter.
for (const button of document.querySelectorAll("button.copy")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const from = button.dataset.from && document.getElementById(button.dataset.from);
    await navigator.clipboard.writeText(from ? from.textContent : button.dataset.copy);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
const filter = document.getElementById("filter");
if (filter) {
  filter.parentElement.hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const card of document.querySelectorAll(".card")) {
      card.hidden = !words.every((word) => card.dataset.text.includes(word));
      shown += card.hidden ? 0 : 1;
    }
    document.getElementById("none").hidden = shown > 0;
  });
}
