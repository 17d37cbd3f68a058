"use strict";
{
  const root = document.documentElement;

  const setUp = (section) => {
    const card = section.querySelector(".cd-card");
    const area = section.querySelector(".cd-columns");
    const rows = new Map();
    const texts = new Map();
    for (const hit of area.querySelectorAll(".hit")) {
      const layer = Number(hit.dataset.layer);
      const title = hit.querySelector("title");
      if (hit.closest(".cd-stack")) texts.set(layer, title.textContent);
      // The card replaces the browser's own tooltip.
      title.remove();
      rows.set(layer, [...(rows.get(layer) || []), hit]);
    }
    let shown = null;

    const mark = (layer, on) => {
      for (const hit of rows.get(layer) || []) hit.classList.toggle("cd-on", on);
    };

    const fill = (layer) => {
      const [name, ...lines] = texts.get(layer).split("\n");
      const head = document.createElement("strong");
      const list = document.createElement("dl");
      head.textContent = name;
      for (const line of lines) {
        const at = line.indexOf(": ");
        const term = document.createElement("dt");
        const value = document.createElement("dd");
        term.textContent = line.slice(0, at);
        value.textContent = line.slice(at + 2);
        list.append(term, value);
      }
      card.replaceChildren(head, list);
    };

    const show = (layer, x, y) => {
      if (layer !== shown) {
        if (shown !== null) mark(shown, false);
        mark(layer, true);
        fill(layer);
        shown = layer;
      }
      card.hidden = false;
      const size = card.getBoundingClientRect();
      const left = x + 18 + size.width > innerWidth - 8 ? x - 18 - size.width : x + 18;
      const top = Math.min(y + 14, innerHeight - size.height - 8);
      card.style.left = `${Math.max(8, left)}px`;
      card.style.top = `${Math.max(8, top)}px`;
    };

    const hide = () => {
      if (shown !== null) mark(shown, false);
      shown = null;
      card.hidden = true;
    };

    const showByKey = (layer) => {
      const box = rows.get(layer)[0].getBoundingClientRect();
      show(layer, box.right - 18, box.top);
    };

    const follow = (event) => {
      const hit = event.target.closest(".hit");
      if (hit) show(Number(hit.dataset.layer), event.clientX, event.clientY);
      else hide();
    };
    area.addEventListener("pointermove", follow);
    area.addEventListener("pointerdown", follow);
    area.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    area.addEventListener("blur", hide);
    area.addEventListener("focus", () => {
      if (area.matches(":focus-visible")) showByKey(rows.size - 1);
    });
    area.addEventListener("keydown", (event) => {
      const last = rows.size - 1;
      const now = shown === null ? last + 1 : shown;
      const next = { ArrowUp: now + 1, ArrowDown: now - 1, Home: last, End: 0 }[event.key];
      if (event.key === "Escape") hide();
      if (next === undefined) return;
      event.preventDefault();
      showByKey(Math.min(last, Math.max(0, next)));
    });
  };

  const actions = {
    theme: () => {
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      const now = root.dataset.theme || (dark ? "dark" : "light");
      root.dataset.theme = now === "dark" ? "light" : "dark";
    },
    svg: async () => {
      const packed = atob(document.querySelector(".cd-svg").textContent);
      const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const text = await new Response(stream).text();
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
      link.download = "drawing.svg";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    },
  };

  document.querySelectorAll("section.cutaway-drawing").forEach(setUp);
  for (const button of document.querySelectorAll(".cd-bar [data-action]")) {
    button.addEventListener("click", actions[button.dataset.action]);
  }
}
