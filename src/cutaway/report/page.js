"use strict";
const pictures = JSON.parse(document.getElementById("pictures").textContent);
const templates = JSON.parse(document.getElementById("templates").textContent);
const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;

const mode = () => chosen || (system.matches ? "dark" : "light");
const layoutOf = (picture) => ({ ...picture.layout, template: templates[mode()], autosize: true });

function draw(box) {
  const picture = pictures[box.dataset.picture];
  Plotly.react(box, picture.data, layoutOf(picture), picture.config);
  box.dataset.drawn = "yes";
}

function applyTheme() {
  root.dataset.theme = mode();
  document.querySelectorAll(".plot[data-drawn]").forEach(draw);
}

document.getElementById("theme").addEventListener("click", () => {
  chosen = mode() === "dark" ? "light" : "dark";
  applyTheme();
});
system.addEventListener("change", applyTheme);
applyTheme();

// Figures are drawn when they come near the viewport, so a long report opens quickly.
const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) {
      observer.unobserve(entry.target);
      draw(entry.target);
    }
  }
}, { rootMargin: "600px" });
document.querySelectorAll(".plot").forEach((box) => observer.observe(box));
window.addEventListener("beforeprint", () => {
  document.querySelectorAll(".plot:not([data-drawn])").forEach(draw);
});

function copy(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return Promise.resolve();
}

document.querySelectorAll("button[data-copy]").forEach((button) => {
  button.addEventListener("click", async () => {
    await copy(button.previousElementSibling.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
});
