"""The layer x token grid of a text as one self-contained web page."""

import json
from collections.abc import Mapping
from typing import Any

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Lens</title><style>
body {{ font: 14px system-ui, sans-serif; margin: 2rem; color: #1b1f24; background: #fff; }}
table {{ border-collapse: separate; border-spacing: 2px; }}
th {{ font-weight: 600; padding: 2px 6px; color: #57606a; text-align: center; }}
td {{ padding: 3px 6px; text-align: center; white-space: pre; font-family: ui-monospace, monospace;
      border-radius: 4px; max-width: 9rem; overflow: hidden; text-overflow: ellipsis; }}
td.same {{ outline: 2px solid #1a7f37; outline-offset: -2px; }}
.scroll {{ overflow-x: auto; }} label {{ margin-right: 1rem; }}
#hover {{ position: fixed; display: none; background: #1b1f24; color: #fff; padding: 8px 12px;
          border-radius: 6px; font-family: ui-monospace, monospace; white-space: pre; }}
</style></head><body>
<h1>Prediction of each layer</h1>
<p>Model <b id="model"></b>. Rows are layers, the last on top; columns are tokens. Darker means
more likely; a green frame marks the full model's token. Hover for more tokens.</p>
<p id="kinds"></p><div class="scroll"><table id="grid"></table></div><div id="hover"></div>
<script id="data" type="application/json">{data}</script>
<script>
const lens = JSON.parse(document.getElementById("data").textContent);
const hover = document.getElementById("hover"), grid = document.getElementById("grid");
document.getElementById("model").textContent = lens.model;
const shown = (word) => word.replace(/ /g, "\\u00b7").replace(/\\n/g, "\\u21b5") || "\\u2205";
function cell(kind, i, t) {{
  const td = document.createElement("td"), p = lens.probs[kind][i][t][0];
  td.textContent = shown(lens.words[kind][i][t][0]);
  td.style.background = `rgba(9, 105, 218, ${{0.08 + 0.8 * p}})`;
  td.style.color = p > 0.6 ? "#fff" : "inherit";
  if (lens.agree[kind][i][t]) td.className = "same";
  td.onmousemove = (e) => {{
    hover.textContent = lens.words[kind][i][t].map((word, k) =>
      lens.probs[kind][i][t][k].toFixed(3) + "  " + shown(word)).join("\\n");
    hover.style.display = "block";
    hover.style.left = Math.min(e.clientX + 14, innerWidth - 240) + "px";
    hover.style.top = Math.min(e.clientY + 14, innerHeight - 240) + "px";
  }};
  td.onmouseleave = () => hover.style.display = "none";
  return td;
}}
function draw(kind) {{
  grid.replaceChildren();
  for (let i = lens.layers.length - 1; i >= 0; i--) {{
    const row = grid.insertRow(), head = document.createElement("th");
    head.textContent = lens.layers[i]; row.append(head);
    lens.tokens.forEach((_, t) => row.append(cell(kind, i, t)));
  }}
  const foot = grid.insertRow(); foot.append(document.createElement("th"));
  lens.tokens.forEach((word) => {{
    const th = document.createElement("th"); th.textContent = shown(word); foot.append(th); }});
}}
lens.kinds.forEach((kind, n) => {{
  const label = document.createElement("label"), box = document.createElement("input");
  box.type = "radio"; box.name = "kind"; box.checked = n === lens.kinds.length - 1;
  box.onchange = () => draw(kind);
  label.append(box, " " + kind); document.getElementById("kinds").append(label);
}});
draw(lens.kinds[lens.kinds.length - 1]);
</script></body></html>
"""


def lens_page(lens: Mapping[str, Any]) -> str:
    """The page; tokens from the model are data in it, never markup."""
    data = json.dumps(lens, ensure_ascii=False)
    # Only these characters could end a script element.
    safe = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return PAGE.format(data=safe)


def lens_table(lens: Mapping[str, Any], kind: str) -> list[list[str]]:
    """Rows of a terminal table: a header, then layers from the last to the first.

    Each cell is the most likely token and its probability in percent; a star marks the full
    model's token.
    """
    rows = [["layer", *(visible_token(word) for word in lens["tokens"])]]
    for i in reversed(range(len(lens["layers"]))):
        words, probs, agree = (lens[name][kind][i] for name in ("words", "probs", "agree"))
        cells = [
            f"{visible_token(word[0])} {100 * prob[0]:.0f}{'*' if same else ''}"
            for word, prob, same in zip(words, probs, agree, strict=True)
        ]
        rows.append([str(lens["layers"][i]), *cells])
    return rows


def visible_token(word: str) -> str:
    """A token with its spaces and line breaks made visible."""
    return word.replace(" ", "·").replace("\n", "↵") or "∅"
