"use strict";
const pictures = JSON.parse(document.getElementById("pictures").textContent);
const looks = JSON.parse(document.getElementById("looks").textContent);
const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;

const mode = () => chosen || (system.matches ? "dark" : "light");
const layoutOf = (picture) => ({ ...picture.layout, template: looks[mode()], autosize: true });

function draw(box) {
  const picture = pictures[box.dataset.picture];
  Plotly.react(box, picture.data, layoutOf(picture), picture.config);
  box.dataset.drawn = "yes";
}

function dress() {
  root.dataset.theme = mode();
  document.querySelectorAll(".plot[data-drawn]").forEach(draw);
}

document.getElementById("theme").addEventListener("click", () => {
  chosen = mode() === "dark" ? "light" : "dark";
  dress();
});
system.addEventListener("change", dress);
dress();

// Pictures are drawn when they come near the console: a long report opens at once.
const near = new IntersectionObserver((seen) => {
  for (const one of seen) {
    if (one.isIntersecting) {
      near.unobserve(one.target);
      draw(one.target);
    }
  }
}, { rootMargin: "600px" });
document.querySelectorAll(".plot").forEach((box) => near.observe(box));
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
